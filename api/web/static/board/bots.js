/** The known bots and their countdowns. */

import { evolve } from "./evolve.js";

/** @typedef {import("./evolve.js").Bot} Bot */
/** @typedef {import("./evolve.js").Order} Order */
/** @typedef {import("../kit/feed.js").Change} Change */
/**
 * @typedef {object} BotTimerState for drawing only; the server decides when an order is complete
 * @property {number} remainingMs
 * @property {"IDLE" | "PROCESSING"} status
 * @property {string | null} currentOrderId
 * @property {number} lastTick
 */

export class BotStore {
  /** The countdowns of this tab. @type {Map<string, BotTimerState>} */
  bots = new Map();
  isLeader = false;
  /** @type {Map<string, Bot>} */
  #known = new Map();

  /**
   * @param {object} callbacks
   * @param {(id: string | null) => Order | undefined} callbacks.orderOf
   * @param {() => number} callbacks.now the server's time
   */
  constructor(callbacks) {
    this.callbacks = callbacks;
  }

  /** By creation time. @returns {Bot[]} */
  get list() {
    return [...this.#known.values()].sort((one, other) =>
      one.createdAt === other.createdAt
        ? one.id.localeCompare(other.id)
        : one.createdAt.localeCompare(other.createdAt),
    );
  }

  /** @param {Bot[]} bots all there are */
  setBots(bots) {
    this.#known = new Map(bots.map((bot) => [bot.id, bot]));
  }

  /** @param {Change} change @returns {boolean} whether it was applied or already known */
  apply(change) {
    const bot = this.#known.get(change.id);
    if (bot === undefined) {
      if (change.topic === "bot.created") this.#known.set(change.id, evolve(undefined, change));
      return ["bot.created", "bot.deleted"].includes(change.topic);
    }
    if (change.version <= bot.version) return true;
    if (change.version > bot.version + 1) return false;
    const next = evolve(bot, change);
    if (next.deletedAt === null) this.#known.set(next.id, next);
    else this.#known.delete(next.id);
    return true;
  }

  /** Marks a bot as idle because another tab saw its completion. @param {string} botId */
  rest(botId) {
    const state = this.bots.get(botId);
    if (state) this.bots.set(botId, { ...state, remainingMs: 0, status: "IDLE", currentOrderId: null });
  }

  /**
   * Advances every countdown.
   *
   * @returns {{changed: string[], over: string[]}} the bots with a new activity, and the
   *   orders whose time has just elapsed
   */
  tick() {
    const now = this.callbacks.now();
    const before = this.bots;
    this.bots = new Map();
    /** @type {string[]} */ const changed = [];
    /** @type {string[]} */ const over = [];
    for (const bot of this.#known.values()) {
      const was = before.get(bot.id);
      const state = this.#stateOf(bot, now);
      this.bots.set(bot.id, state);
      if (was?.status === state.status && was.currentOrderId === state.currentOrderId) continue;
      changed.push(bot.id);
      if (was?.currentOrderId != null && was.currentOrderId === bot.currentOrderId) {
        over.push(was.currentOrderId);
      }
    }
    return { changed, over };
  }

  /** Idle once its time has elapsed, even before the server confirms. @returns {BotTimerState} */
  #stateOf(/** @type {Bot} */ bot, /** @type {number} */ now) {
    const dueAt = this.callbacks.orderOf(bot.currentOrderId)?.dueAt;
    const remainingMs = dueAt ? Math.max(0, Date.parse(dueAt) - now) : 0;
    const isBusy = bot.status === "PROCESSING" && (remainingMs > 0 || bot.completion === "ack");
    return {
      remainingMs,
      status: isBusy ? "PROCESSING" : "IDLE",
      currentOrderId: isBusy ? bot.currentOrderId : null,
      lastTick: now,
    };
  }
}
