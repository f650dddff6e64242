/** `<daybook-freshness>`: the log position that this page shows, and its lag. */

import { element, setText } from "./element.js";
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
  #updatedAt = null;
  #state = /** @type {keyof typeof WORDS | "loading"} */ ("loading");
  #text = element("span");

  connectedCallback() {
    this.replaceChildren(element("span", { class: "dot", "aria-hidden": "true" }), this.#text);
    setInterval(() => this.#draw(), REDRAW_MS);
    this.#draw();
  }

  /** The page now includes everything up to a position. @param {number} position @param {number} [ageMs] */
  update(position, ageMs = 0) {
    this.#position = Math.max(this.#position, position);
    this.#updatedAt = performance.now() - ageMs;
  }

  /** @param {keyof typeof WORDS} state */
  set state(state) {
    this.#state = state;
    this.dataset.state = state;
    this.#draw();
  }

  #draw() {
    if (this.#updatedAt === null) return setText(this.#text, "loading …");
    const behindMs = performance.now() - this.#updatedAt;
    const lag = behindMs < LONG_MS ? seconds(behindMs) : duration(behindMs);
    const how = this.#state === "loading" ? "loading …" : WORDS[this.#state];
    return setText(this.#text, `Position ${count(this.#position)} · lag ${lag} · ${how}`);
  }
}

customElements.define("daybook-freshness", Freshness);
