/**
 * Folds events into orders and bots by rules derived from the server's, so a page that receives every
 * event need not read again.
 */

import { TRANSITIONS } from "./transitions.js";

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

/** @type {Record<string, (parameters: any[], member: string, state: any, data: any) => any>} */
const OPERATIONS = {
  keep: (_, member, state) => state[member],
  set: ([value]) => value,
  copy: ([name], _member, _state, data) => data[name],
  add: ([number], member, state) => state[member] + number,
  // The server counts code points, as an array of a string does.
  append: ([item, charactersMax, itemsMax], member, state, data) => {
    const added = Array.from(perform(item, member, state, data)).slice(0, charactersMax).join("");
    return [...state[member], added].slice(-itemsMax);
  },
  by: ([name, cases], member, state, data) => perform(cases[data[name]] ?? ["keep"], member, state, data),
  if: ([name, yes, no], member, state, data) => perform(state[name] ? yes : no, member, state, data),
};

/** @param {any[]} operation @param {string} member @param {any} state @param {any} data */
function perform([name, ...parameters], member, state, data) {
  return OPERATIONS[name](parameters, member, state, data);
}

/**
 * The order or bot after a change, by the rule of its topic. A change of an unknown topic, sent by a
 * newer server, leaves the version behind: the next change then makes the page read the board again.
 *
 * @param {any} state undefined before its first event
 * @param {Change} change
 */
export function evolve(state, { topic, data }) {
  const changes = Object.entries(TRANSITIONS[topic] ?? {}).map(
    ([member, operation]) => [member, perform(operation, member, state, data)],
  );
  return { ...state, ...Object.fromEntries(changes) };
}
