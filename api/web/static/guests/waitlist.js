/** Shared by the waitlist pages of a restaurant. */

import { Problem, read } from "../kit/client.js";
import { element, find } from "../kit/element.js";
import { Feed, NoSource } from "../kit/feed.js";
import "../kit/freshness.js";
import "../kit/notices.js";

/** @typedef {{minutesLow: number, minutesHigh: number}} Wait */
/**
 * @typedef {object} Ticket as in the API; `guest` for staff only
 * @property {string} id
 * @property {string} tokenNumber
 * @property {"WAITING" | "CALLED" | "SEATED" | "NO_SHOW" | "CANCELLED"} status
 * @property {number | null} position
 * @property {Wait | null} estimatedWait
 * @property {number} partySize
 * @property {string | null} seatingType
 * @property {string | null} desk
 * @property {string} createdAt
 * @property {string | null} calledAt
 * @property {string | null} recalledAt
 * @property {{name: string, mobileNumber: string} | null} [guest]
 */

/** The slug is the second path segment of every page. */
export const slug = decodeURIComponent(location.pathname.split("/")[2] ?? "");
export const restaurantPath = `/api/restaurants/${encodeURIComponent(slug)}`;

/** @type {import("../kit/notices.js").Notices} */
export const notices = find("daybook-notices");
/** @type {import("../kit/freshness.js").Freshness} */
const freshness = find("daybook-freshness");

/**
 * Keeps a page up to date.
 *
 * @param {import("../kit/feed.js").Source} source
 * @param {() => Promise<void>} show reads and draws the page
 * @param {(change: import("../kit/feed.js").Change) => boolean} [concerns] whether to refresh
 */
export function keepUp(source, show, concerns = () => false) {
  const feed = new Feed({
    refresh: async () => {
      // Read first: the page then includes everything up to this position.
      const { position } = await read("/health/ready");
      const isThere = await show().then(() => true, rethrowUnlessUnknown);
      find("main").hidden = !isThere;
      find("#unknown").hidden = isThere;
      freshness.update(position);
    },
    onChanges: (changes, position) => {
      if (changes.some(concerns)) void feed.refresh();
      else freshness.update(position);
    },
    onState: (state) => {
      // Guest pages always poll: not a problem to report.
      freshness.state = state === "polling" && source instanceof NoSource ? "asking" : state;
      notices.banner = state === "offline" ? "Disconnected. Reconnecting …" : null;
    },
  });
  feed.use(source);
  void feed.refresh();
  return feed;
}

/** @param {unknown} error @returns {false} when there is no such restaurant */
function rethrowUnlessUnknown(error) {
  if (error instanceof Problem && [400, 404].includes(error.status)) return false;
  throw error;
}

/** @param {Wait} wait @returns {string} */
export function waitText(wait) {
  if (wait.minutesHigh === 0) return "no wait";
  if (wait.minutesLow === wait.minutesHigh) return `about ${wait.minutesHigh} min`;
  return `${wait.minutesLow} – ${wait.minutesHigh} min`;
}

/** @param {number} waiting @returns {string} */
export function parties(waiting) {
  if (waiting === 0) return "No guests waiting";
  return waiting === 1 ? "1 party waiting" : `${waiting} parties waiting`;
}

/**
 * A token with an emphasised number: RCORNER-000042.
 *
 * @param {Element} where
 * @param {string} token
 */
export function setToken(where, token) {
  if (where.textContent === token) return;
  const cut = token.lastIndexOf("-");
  const joint = element("span", { class: "joint" }, token.slice(cut, cut + 1));
  const prefix = cut < 0 ? [] : [element("small", {}, token.slice(0, cut), joint)];
  where.replaceChildren(...prefix, token.slice(cut + 1));
}
