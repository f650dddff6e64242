/** The events of one aggregate. */

import { read } from "../kit/client.js";
import { arrange, element } from "../kit/element.js";
import { clock, count } from "../kit/time.js";
import { pretty } from "./view.js";

const PAGE = 200;
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/**
 * @typedef {object} LogEvent
 * @property {number} position
 * @property {string} topic
 * @property {number} version
 * @property {string} recordedAt
 * @property {string} actor
 * @property {Record<string, unknown>} data
 */

/** @param {string} id @returns {Promise<{events: LogEvent[], isCut: boolean}>} empty for an unknown id */
export async function readTimeline(id) {
  const page = await read(`/api/events?aggregate=${encodeURIComponent(id)}&limit=${PAGE}`);
  return { events: page.events, isCut: page.nextAfter !== null };
}

/** @param {Element} list @param {LogEvent[]} events */
export function showTimeline(list, events) {
  arrange(list, events, (event) => String(event.position), stepOf, () => {});
}

/** @param {LogEvent} event */
function stepOf(event) {
  const [kind, what] = event.topic.split(".", 2);
  const at = element("time", { datetime: event.recordedAt, title: event.recordedAt }, `${DAY.format(new Date(event.recordedAt))}, ${clock(event.recordedAt)}`);
  return element(
    "li",
    {},
    element("p", { class: "step" }, element("strong", {}, what.replaceAll("_", " ")), " ", element("span", { class: "hint" }, `${kind} · version ${event.version}`)),
    element("p", { class: "hint" }, at, ` · position ${count(event.position)} · by ${event.actor}`),
    element("details", {}, element("summary", {}, "Data"), pretty(event.data)),
  );
}
