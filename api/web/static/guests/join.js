/** The guest page: the form to join the waitlist, then the ticket. */

import { Problem, identifier, read, write } from "../kit/client.js";
import { find, setText } from "../kit/element.js";
import { NoSource } from "../kit/feed.js";
import { load, remove, save } from "../kit/storage.js";
import { waitText, keepUp, restaurantPath, notices, parties, setToken, slug } from "./waitlist.js";

/** @typedef {import("./waitlist.js").Ticket} Ticket */

const TICKET_KEY = `feedme-ticket-${slug}`;
const JOIN_KEY = `feedme-join-${slug}`;
const CALLED_PATTERN_MS = [300, 150, 300];

const form = /** @type {HTMLFormElement} */ (find("#join"));
/** @type {string | null} */
let ticketId = load(TICKET_KEY);
/** @type {Ticket["status"] | null} */
let status = null;

/** Headline and advice for each status. @type {Record<Ticket["status"], (ticket: Ticket) => [string, string]>} */
const WORDS = {
  WAITING: (ticket) => [
    ticket.position === 1 ? "You are next" : `${(ticket.position ?? 1) - 1} ahead of you`,
    "Keep this page open: it notifies you when it is your turn.",
  ],
  CALLED: (ticket) => [
    "It is your turn",
    ticket.desk === null ? "Please come to the desk now." : `Please come to ${ticket.desk} now.`,
  ],
  SEATED: () => ["Enjoy your meal", "You are seated."],
  NO_SHOW: () => ["You missed your call", "Please speak to the staff: they can return you to the waitlist."],
  CANCELLED: () => ["You left the waitlist", "You can join again at any time."],
};

async function show() {
  const { board } = await read(`${restaurantPath}/board`);
  setText(find("#restaurant"), board.name);
  setText(find("#waiting"), parties(board.waiting));
  setText(find("#wait-now"), waitText(board.estimatedWait));
  document.title = status === "CALLED" ? "It is your turn" : `${board.name} · Join the waitlist`;
  if (ticketId !== null) await showTicket(ticketId);
  form.hidden = ticketId !== null;
  find("#ticket").hidden = ticketId === null;
}

/** @param {string} id */
async function showTicket(id) {
  try {
    draw((await read(`${restaurantPath}/tickets/${id}`)).ticket);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 404) throw error;
    putAway();
  }
}

/** @param {Ticket} ticket */
function draw(ticket) {
  const [headline, advice] = WORDS[ticket.status](ticket);
  find("#ticket").dataset.status = ticket.status;
  setToken(find("#token"), ticket.tokenNumber);
  setText(find("#headline"), headline);
  setText(find("#advice"), advice);
  setText(find("#estimate"), ticket.estimatedWait === null ? "" : waitText(ticket.estimatedWait));
  find("#estimate-row").hidden = ticket.estimatedWait === null;
  find("#leave").hidden = ticket.status !== "WAITING" && ticket.status !== "CALLED";
  find("#again").hidden = !["SEATED", "CANCELLED", "NO_SHOW"].includes(ticket.status);
  if (ticket.status === "CALLED" && status === "WAITING") navigator.vibrate?.(CALLED_PATTERN_MS);
  status = ticket.status;
}

function putAway() {
  remove(TICKET_KEY);
  ticketId = status = null;
}

async function join() {
  const entered = new FormData(form);
  const body = {
    name: entered.get("name"),
    mobileNumber: entered.get("mobile"),
    partySize: Number(entered.get("party")),
    ...(entered.get("seating") ? { seatingType: entered.get("seating") } : {}),
  };
  // Kept until a response arrives: a guest who reloads and retries joins once.
  const key = sessionKey();
  try {
    const { ticket } = await write("POST", `${restaurantPath}/tickets`, body, key);
    ticketId = ticket.id;
    save(TICKET_KEY, ticketId);
    form.reset();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    remove(JOIN_KEY);
    throw error;
  }
  remove(JOIN_KEY);
  await feed.refresh();
}

function sessionKey() {
  const key = load(JOIN_KEY) ?? identifier();
  save(JOIN_KEY, key);
  return key;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void notices.attempt(find("button", form), join);
});
find("#leave").addEventListener("click", () =>
  notices.attempt(find("#leave"), async () => {
    await write("POST", `${restaurantPath}/tickets/${ticketId}/cancel`);
    await feed.refresh();
  }),
);
find("#again").addEventListener("click", () => {
  putAway();
  void feed.refresh();
});

const feed = keepUp(new NoSource(), show);
