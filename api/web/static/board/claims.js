/** The leader's other duty: bots that do not help themselves are given what waits. */

import { write } from "../kit/client.js";

const ASK_AGAIN_MS = 2000;

/** @typedef {import("./evolve.js").Bot} Bot */

export class Claims {
  #isAsking = false;
  /** When each bot was asked for last, in which version. @type {Map<string, string>} */
  #asked = new Map();
  #forgetAt = 0;

  /**
   * Claims for every bot that stands idle, as far as there are orders. One that reports its own
   * work asks for it too, and is left alone.
   *
   * @param {Bot[]} bots
   * @param {number} waiting how many orders wait
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
      // They are asked for again: nothing is lost by it.
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

/** What is known when it is asked: the same question again would get the same answer. */
function asking(/** @type {Bot} */ bot, /** @type {number} */ waiting) {
  return `${bot.version} ${waiting}`;
}
