/**
 * Throughput series of the last few minutes.
 *
 * Rates come from the log (`/api/rates`): the first response covers the time before the page opened,
 * each later one continues from there. Queue depth is sampled by the page.
 */

import { read } from "../kit/client.js";
import { ServerClock } from "../kit/time.js";

/** @typedef {{at: string, queue: string, created: number, completed: number, failed: number, dead: number}} Slice */

const POINTS = 60;

export class Rates {
  clock = new ServerClock();
  /** @type {number | null} */
  #position = null;
  #until = 0;
  #sliceMs = 5000;
  /** Observed seconds of each slice. @type {Map<number, number>} */
  #covered = new Map();
  /** @type {Map<string, Map<number, {created: number, completed: number}>>} */
  #counts = new Map();
  /** @type {Map<string, Map<number, number>>} */
  #depths = new Map();

  async update() {
    const query = this.#position === null ? "" : `?after=${this.#position}`;
    const askedAt = Date.now();
    const response = await read(`/api/rates${query}`);
    this.clock.sync(response.until, askedAt);
    this.#position = response.position;
    this.#sliceMs = response.sliceSeconds * 1000;
    const from = Math.max(Date.parse(response.since), this.#until);
    this.#until = Date.parse(response.until);
    this.#cover(from, this.#until);
    for (const slice of response.slices) this.#add(slice);
    this.#forget();
  }

  /** @param {string} queue @param {number} waiting */
  sample(queue, waiting) {
    const series = this.#depths.get(queue) ?? new Map();
    this.#depths.set(queue, series.set(this.#last, waiting));
  }

  /** Queue depth per slice since the page opened. @param {string} queue @returns {(number | null)[]} */
  depths(queue) {
    return this.#slices((at) => this.#depths.get(queue)?.get(at) ?? null);
  }

  /** Jobs per second and slice. @param {string} queue @param {"created" | "completed"} what @returns {(number | null)[]} */
  perSecond(queue, what) {
    return this.#slices((at) => {
      const seconds = this.#covered.get(at) ?? 0;
      // A slice observed for less than a second gives no meaningful rate.
      if (seconds < 0.5) return null;
      return (this.#counts.get(queue)?.get(at)?.[what] ?? 0) / seconds;
    });
  }

  /** The current slice. */
  get #last() {
    return Math.floor(this.#until / this.#sliceMs) * this.#sliceMs;
  }

  /** @param {(at: number) => number | null} value */
  #slices(value) {
    return Array.from({ length: POINTS }, (_, index) => value(this.#last - (POINTS - 1 - index) * this.#sliceMs));
  }

  /** @param {number} from @param {number} until */
  #cover(from, until) {
    for (let at = Math.floor(from / this.#sliceMs) * this.#sliceMs; at < until; at += this.#sliceMs) {
      const overlap = Math.min(until, at + this.#sliceMs) - Math.max(from, at);
      this.#covered.set(at, (this.#covered.get(at) ?? 0) + Math.max(0, overlap) / 1000);
    }
  }

  /** @param {Slice} slice */
  #add(slice) {
    const queue = this.#counts.get(slice.queue) ?? new Map();
    this.#counts.set(slice.queue, queue);
    const at = Date.parse(slice.at);
    const before = queue.get(at) ?? { created: 0, completed: 0 };
    const { created, completed } = slice;
    queue.set(at, { created: before.created + created, completed: before.completed + completed });
  }

  #forget() {
    const oldest = this.#until - POINTS * this.#sliceMs * 2;
    for (const kept of [this.#covered, ...this.#counts.values(), ...this.#depths.values()]) {
      for (const at of kept.keys()) if (at < oldest) kept.delete(at);
    }
  }
}
