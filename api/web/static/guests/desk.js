/** The staff page: call guests, and record whether they came. */

import { read, write } from "../kit/client.js";
import { arrange, element, find, setText } from "../kit/element.js";
import { StreamSource } from "../kit/feed.js";
import { load, save } from "../kit/storage.js";
import { clock, count } from "../kit/time.js";
import { keepUp, restaurantPath, notices, setToken, slug } from "./waitlist.js";

/** @typedef {import("./waitlist.js").Ticket} Ticket */

const DESK_KEY = "feedme-desk";
const SHOWN_MAX = 200;
const DAY_MS = 30_000;
const ACTIONS = {
  CALLED: { seat: "Seat", recall: "Recall", "no-show": "No-show", return: "Return to waitlist" },
  WAITING: { call: "Call", cancel: "Cancel" },
  NO_SHOW: { return: "Return to waitlist" },
};
const NAMES_DESK = ["call", "recall"];

const desk = /** @type {HTMLInputElement} */ (find("#desk"));
desk.value = load(DESK_KEY) ?? "";
desk.addEventListener("change", () => save(DESK_KEY, desk.value.trim()));
/** The tickets on this page, to filter changes. */
const ids = new Set();

async function show() {
  const [{ restaurant }, listed, missed] = await Promise.all([
    read(restaurantPath),
    read(`${restaurantPath}/tickets?limit=${SHOWN_MAX}`),
    read(`${restaurantPath}/tickets?status=NO_SHOW&limit=10`),
  ]);
  document.title = `${restaurant.name} · Desk`;
  setText(find("#restaurant"), restaurant.name);
  setText(find("#waiting-count"), count(listed.waiting));
  ids.clear();
  for (const ticket of [restaurant, ...listed.tickets, ...missed.tickets]) ids.add(ticket.id);
  const of = (/** @type {string} */ status) =>
    listed.tickets.filter((/** @type {Ticket} */ ticket) => ticket.status === status);
  showTickets("CALLED", of("CALLED"));
  showTickets("WAITING", of("WAITING"));
  showTickets("NO_SHOW", missed.tickets);
  find("#call-next").disabled = listed.waiting === 0;
}

/** Daily figures are expensive: not refreshed with every change. */
async function showDay() {
  const { figures } = await read(`${restaurantPath}/figures`);
  setText(find("#day"), dayOf(figures));
}

/** @param {any} figures */
function dayOf(figures) {
  const { SEATED: seated, NO_SHOW: missed, CANCELLED: cancelled } = figures.byStatus;
  const parts = [`Today ${count(figures.joined)} joined`, `${count(seated)} seated`];
  if (missed > 0) parts.push(`${count(missed)} did not show up`);
  if (cancelled > 0) parts.push(`${count(cancelled)} left the waitlist`);
  if (figures.averageWaitMinutes !== null) parts.push(`called after ${figures.averageWaitMinutes} min on average`);
  return `${parts.join(" · ")}.`;
}

/** @param {keyof ACTIONS} status @param {Ticket[]} tickets */
function showTickets(status, tickets) {
  const list = find(`ol[data-status="${status}"]`);
  arrange(list, tickets, (ticket) => ticket.id, (ticket) => rowOf(ticket, ACTIONS[status]), describe);
  find(".empty", list.parentElement).hidden = tickets.length > 0;
}

/** @param {Ticket} ticket @param {Record<string, string>} actions */
function rowOf(ticket, actions) {
  const buttons = Object.entries(actions).map(([action, name]) => {
    const spoken = `${name} ${ticket.tokenNumber}`;
    const button = /** @type {HTMLButtonElement} */ (
      element("button", { type: "button", class: `do-${action}`, "aria-label": spoken }, name)
    );
    button.addEventListener("click", () => notices.attempt(button, () => act(ticket.id, action)));
    return button;
  });
  return element(
    "li",
    { class: "ticket" },
    element("span", { class: "token number" }),
    element("span", { class: "guest" }),
    element("span", { class: "note" }),
    element("span", { class: "actions" }, ...buttons),
  );
}

/** @param {Element} row @param {Ticket} ticket */
function describe(row, ticket) {
  setToken(find(".token", row), ticket.tokenNumber);
  // The API omits the guest for auditors.
  const name = ticket.guest === undefined ? "Guest" : (ticket.guest?.name ?? "Erased");
  const party = ticket.partySize === 1 ? "1 person" : `${ticket.partySize} people`;
  const wish = ticket.seatingType === null ? "" : ` · ${ticket.seatingType}`;
  setText(find(".guest", row), `${name} · ${party}${wish}`);
  setText(find(".note", row), noteOf(ticket));
}

/** @param {Ticket} ticket */
function noteOf(ticket) {
  if (ticket.status === "WAITING") return `no. ${ticket.position} · since ${clock(ticket.createdAt)}`;
  const where = ticket.desk === null ? "" : ` to ${ticket.desk}`;
  const again = ticket.recalledAt === null ? "" : `, again at ${clock(ticket.recalledAt)}`;
  return ticket.calledAt === null ? "" : `called${where} at ${clock(ticket.calledAt)}${again}`;
}

/** @param {string} id @param {string} action */
async function act(id, action) {
  await write("POST", `${restaurantPath}/tickets/${id}/${action}`, NAMES_DESK.includes(action) ? named() : undefined);
  await feed.refresh();
  // Its row may be gone: keeps the focus for keyboard users.
  if (document.activeElement === document.body) find("#call-next").focus();
}

async function callNext() {
  const called = await write("POST", `${restaurantPath}/call-next`, named());
  setText(find("#announcement"), called === null ? "No guests waiting" : `${called.ticket.tokenNumber} was called`);
  await feed.refresh();
}

/** The desk to come to, if this desk has a name. */
function named() {
  const name = desk.value.trim();
  return name === "" ? {} : { desk: name };
}

find("#call-next").addEventListener("click", () => notices.attempt(find("#call-next"), callNext));
for (const link of document.querySelectorAll("nav a")) {
  link.setAttribute("href", (link.getAttribute("href") ?? "").replace("{slug}", encodeURIComponent(slug)));
}

void showDay().catch(() => {});
setInterval(() => void showDay().catch(() => {}), DAY_MS);
const feed = keepUp(new StreamSource(["restaurant", "ticket"]), show, (change) => ids.has(change.id));
