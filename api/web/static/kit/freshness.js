/** `<daybook-freshness>`: the log position that this page shows, and its lag. */

import { element, say } from "./element.js";
import { count, duration, seconds } from "./time.js";

const WORDS = {
  live: "live",
  asking: "updated every 2 s",
  polling: "updated every 2 s",
  offline: "disconnected",
};
const REDRAW_MS = 500;
const LONG_MS = 10_000;

export class Freshness extends HTMLElement {
  #position = 0;
  /** @type {number | null} */
  #heardAt = null;
  #state = /** @type {keyof typeof WORDS | "loading"} */ ("loading");
  #text = element("span");

  connectedCallback() {
    this.replaceChildren(element("span", { class: "dot", "aria-hidden": "true" }), this.#text);
    setInterval(() => this.#draw(), REDRAW_MS);
    this.#draw();
  }

  /** The page now includes everything up to a position. @param {number} position @param {number} [ageMs] */
  heard(position, ageMs = 0) {
    this.#position = Math.max(this.#position, position);
    this.#heardAt = performance.now() - ageMs;
  }

  /** @param {keyof typeof WORDS} state */
  set state(state) {
    this.#state = state;
    this.dataset.state = state;
    this.#draw();
  }

  #draw() {
    if (this.#heardAt === null) return say(this.#text, "loading …");
    const behindMs = performance.now() - this.#heardAt;
    const lag = behindMs < LONG_MS ? seconds(behindMs) : duration(behindMs);
    const how = this.#state === "loading" ? "loading …" : WORDS[this.#state];
    return say(this.#text, `Position ${count(this.#position)} · lag ${lag} · ${how}`);
  }
}

customElements.define("daybook-freshness", Freshness);
