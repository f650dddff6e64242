/**
 * Folds events into orders and bots exactly as the server does, so a page that receives every event
 * need not read again.
 */

/** @typedef {import("../kit/feed.js").Change} Change */
/**
 * @typedef {object} Order as in the API
 * @property {string} id
 * @property {number} orderNumber
 * @property {"NORMAL" | "VIP"} type
 * @property {"PENDING" | "PROCESSING" | "COMPLETE" | "DEAD"} status
 * @property {string | null} botId
 * @property {string | null} dueAt
 * @property {string | null} processingStartedAt
 * @property {string | null} completedAt
 * @property {string | null} deletedAt
 * @property {string} createdAt
 * @property {string} updatedAt
 * @property {string | null} claimId
 * @property {string | null} userId
 * @property {number} attempts
 * @property {number} version
 */
/**
 * @typedef {object} Bot as in the API
 * @property {string} id
 * @property {"IDLE" | "PROCESSING" | "DEAD"} status
 * @property {string | null} currentOrderId
 * @property {boolean} autoClaim
 * @property {"timer" | "ack"} completion
 * @property {number} failuresMax
 * @property {number} failures in a row
 * @property {string[]} errors of these
 * @property {string | null} deadAt
 * @property {string} createdAt
 * @property {string} updatedAt
 * @property {string | null} deletedAt
 * @property {number} version
 */

const NO_CLAIM = { botId: null, claimId: null, processingStartedAt: null, dueAt: null };
/** A release for this reason counts as an attempt; other releases do not. */
const COUNTS = "expired";
const NOT_REPORTED = "no report before the claim was due";
const ERRORS_MAX = 10;
const ERROR_CHARACTERS_MAX = 500;
const IN_SERVICE = { failures: 0, errors: [], deadAt: null };

/** @type {Record<string, (order: Order, data: any) => Partial<Order>>} */
const ORDER = {
  "order.claimed": (_, data) => ({
    status: "PROCESSING",
    botId: data.botId,
    claimId: data.claimId,
    processingStartedAt: data.at,
    dueAt: data.dueAt,
    attempts: data.attempt,
  }),
  "order.completed": (_, data) => ({ status: "COMPLETE", completedAt: data.at }),
  "order.failed": () => ({ status: "PENDING", ...NO_CLAIM }),
  "order.released": (order, data) => ({
    status: "PENDING",
    attempts: order.attempts - (data.reason === COUNTS ? 0 : 1),
    ...NO_CLAIM,
  }),
  "order.moved_to_dlq": () => ({ status: "DEAD" }),
  "order.requeued": () => ({ status: "PENDING", attempts: 0 }),
  "order.deleted": (_, data) => ({ deletedAt: data.at }),
  "order.restored": () => ({ deletedAt: null }),
};

/** @param {Bot} bot @param {string} error @returns {Partial<Bot>} */
function failed(bot, error) {
  const rest = { status: /** @type {const} */ ("IDLE"), currentOrderId: null };
  if (bot.failuresMax === 0) return rest;
  const errors = [...bot.errors, Array.from(error).slice(0, ERROR_CHARACTERS_MAX).join("")];
  return { ...rest, failures: bot.failures + 1, errors: errors.slice(-ERRORS_MAX) };
}

/** @type {Record<string, (bot: Bot, data: any) => Partial<Bot>>} */
const BOT = {
  "bot.claimed": (_, data) => ({ status: "PROCESSING", currentOrderId: data.orderId }),
  "bot.completed": () => ({ status: "IDLE", currentOrderId: null, ...IN_SERVICE }),
  "bot.failed": (bot, data) => failed(bot, data.error),
  "bot.released": (bot, data) =>
    data.reason === COUNTS ? failed(bot, NOT_REPORTED) : { status: "IDLE", currentOrderId: null },
  "bot.moved_to_dlq": (_, data) => ({ status: "DEAD", failures: data.failures, errors: data.errors, deadAt: data.at }),
  "bot.restored": () => ({ status: "IDLE", ...IN_SERVICE }),
  "bot.configured": (bot, data) => ({
    failuresMax: data.failuresMax,
    ...(bot.deadAt === null ? IN_SERVICE : {}),
  }),
  "bot.deleted": (_, data) => ({ deletedAt: data.at }),
};

/** @param {Change} change @returns {Order} */
export function createdOrder({ id, version, data }) {
  return {
    id,
    orderNumber: data.number,
    type: data.kind,
    status: "PENDING",
    userId: data.userId,
    attempts: 0,
    createdAt: data.at,
    completedAt: null,
    updatedAt: data.at,
    deletedAt: null,
    version,
    ...NO_CLAIM,
  };
}

/** @param {Change} change @returns {Bot} */
export function createdBot({ id, version, data }) {
  return {
    id,
    status: "IDLE",
    currentOrderId: null,
    autoClaim: data.autoClaim,
    completion: data.completion,
    failuresMax: data.failuresMax,
    ...IN_SERVICE,
    createdAt: data.at,
    updatedAt: data.at,
    deletedAt: null,
    version,
  };
}

/** @param {Order} order @param {Change} change @returns {Order} */
export function evolveOrder(order, change) {
  return evolved(ORDER, order, change);
}

/** @param {Bot} bot @param {Change} change @returns {Bot} */
export function evolveBot(bot, change) {
  return evolved(BOT, bot, change);
}

/**
 * @template {{version: number, updatedAt: string}} T
 * @param {Record<string, (state: T, data: any) => Partial<T>>} fold
 * @param {T} state
 * @param {Change} change
 * @returns {T}
 */
function evolved(fold, state, { topic, version, data }) {
  const changes = fold[topic]?.(state, data) ?? {};
  return { ...state, ...changes, updatedAt: data.at, version };
}
