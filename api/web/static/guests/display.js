/** The public display: current call, next tokens and estimated wait. */

import { read } from "../kit/client.js";
import { arrange, element, find, setText } from "../kit/element.js";
import { NoSource } from "../kit/feed.js";
import { waitText, keepUp, restaurantPath, parties, setToken } from "./waitlist.js";

/** @typedef {{ticketId: string, tokenNumber: string, desk: string | null, at: string}} Call */

const SHOWN_MAX = 5;

async function show() {
  const { board } = await read(`${restaurantPath}/board`);
  document.title = `${board.name} · Now calling`;
  setText(find("#restaurant"), board.name);
  setText(find("#waiting"), parties(board.waiting));
  setText(find("#wait-now"), waitText(board.estimatedWait));
  showLast(board.lastCalled);
  showTokens("#earlier", board.lastCalls.slice(1, SHOWN_MAX + 1).map((/** @type {Call} */ call) => call.tokenNumber));
  showTokens("#next", board.next);
}

/** @param {Call | null} call */
function showLast(call) {
  const token = find("#last");
  const isNew = call !== null && token.dataset.call !== call.ticketId + call.at;
  setToken(token, call === null ? "—" : call.tokenNumber);
  setText(find("#last-desk"), call?.desk ?? (call === null ? "No calls yet" : "Please come to the desk"));
  if (!isNew) return;
  if (token.dataset.call !== undefined && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    find(".calling").animate([{ scale: 1 }, { scale: 1.04 }, { scale: 1 }], { duration: 600, iterations: 3 });
  }
  token.dataset.call = call.ticketId + call.at;
}

/** @param {string} selector @param {string[]} tokens */
function showTokens(selector, tokens) {
  arrange(
    find(selector),
    tokens,
    (token) => token,
    () => element("li", { class: "token" }),
    setToken,
  );
  find(`${selector}-none`).hidden = tokens.length > 0;
}

keepUp(new NoSource(), show);
