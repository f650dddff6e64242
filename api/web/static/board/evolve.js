/**
 * Folds events into orders and bots by rules derived from the server's, so a page that receives every
 * event need not read again.
 */

import { TRANSITIONS } from "./transitions.js";

/** @typedef {import("../kit/feed.js").Change} Change */
/** @typedef {Record<string, any>} Order in the form of `OrderJSON` in `api/orders/responses.py` */
/** @typedef {Record<string, any>} Bot in the form of `BotJSON` */

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
