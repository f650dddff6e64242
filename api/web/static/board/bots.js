/** The bots that this page knows, and the countdown of each. */

import { createdBot, evolveBot } from "./evolve.js";

/** @typedef {import("./evolve.js").Bot} Bot */
/** @typedef {import("./evolve.js").Order} Order */
/** @typedef {import("../kit/feed.js").Change} Change */
/**
 * @typedef {object} BotTimerState what is drawn; the server alone says when an order is complete
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
   * @param {object} whom
   * @param {(id: string | null) => Order | undefined} whom.orderOf
   * @param {() => number} whom.now the server's time
   */
  constructor(whom) {
    this.whom = whom;
  }

  /** In the order in which they came. @returns {Bot[]} */
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

  /** @param {Change} change @returns {boolean} whether it could be taken in, or was known */
  apply(change) {
    const bot = this.#known.get(change.id);
    if (bot === undefined) {
      if (change.topic === "bot.created") this.#known.set(change.id, createdBot(change));
      return ["bot.created", "bot.deleted"].includes(change.topic);
    }
    if (change.version <= bot.version) return true;
    if (change.version > bot.version + 1) return false;
    const next = evolveBot(bot, change);
    if (next.deletedAt === null) this.#known.set(next.id, next);
    else this.#known.delete(next.id);
    return true;
  }

  /** Its work is over, as another tab saw it. @param {string} botId */
  rest(botId) {
    const state = this.bots.get(botId);
    if (state) this.bots.set(botId, { ...state, remainingMs: 0, status: "IDLE", currentOrderId: null });
  }

  /**
   * Moves every countdown on.
   *
   * @returns {{changed: string[], over: string[]}} the bots that do something else now, and the
   *   orders whose time has just run out
   */
  tick() {
    const now = this.whom.now();
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

  /** Idle when its time is over, even if the server has not said so yet. @returns {BotTimerState} */
  #stateOf(/** @type {Bot} */ bot, /** @type {number} */ now) {
    const dueAt = this.whom.orderOf(bot.currentOrderId)?.dueAt;
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
