/** The leader tab claims orders for bots without auto-claim. */

import { write } from "../kit/client.js";

const ASK_AGAIN_MS = 2000;

/** @typedef {import("./evolve.js").Bot} Bot */

export class Claims {
  #isAsking = false;
  /** The last claim of each bot, with its version. @type {Map<string, string>} */
  #asked = new Map();
  #forgetAt = 0;

  /**
   * Claims orders for idle bots. Bots that report their own completion claim by themselves.
   *
   * @param {Bot[]} bots
   * @param {number} waiting the number of pending orders
   */
  async claim(bots, waiting) {
    this.#forgetInTime();
    const idle = bots.filter((bot) => bot.status === "IDLE" && !bot.autoClaim && bot.completion === "timer");
    const botIds = idle.filter((bot) => this.#asked.get(bot.id) !== asking(bot, waiting)).map((bot) => bot.id);
    if (this.#isAsking || waiting === 0 || botIds.length === 0) return;
    for (const bot of idle) this.#asked.set(bot.id, asking(bot, waiting));
    this.#isAsking = true;
    try {
      await write("POST", "/api/bots/claim", { botIds: botIds.slice(0, waiting) });
    } catch {
      // Retried at the next tick.
      this.#asked.clear();
    } finally {
      this.#isAsking = false;
    }
  }

  #forgetInTime() {
    if (performance.now() < this.#forgetAt) return;
    this.#forgetAt = performance.now() + ASK_AGAIN_MS;
    this.#asked.clear();
  }
}

/** The inputs of a claim: repeating it with the same inputs would give the same result. */
function asking(/** @type {Bot} */ bot, /** @type {number} */ waiting) {
  return `${bot.version} ${waiting}`;
}
