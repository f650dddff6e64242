/** `<bot-list>`: all bots with their activity and progress. */

import { arrange, element, find, setText } from "../kit/element.js";
import { seconds } from "../kit/time.js";

/** @typedef {import("./state.js").BoardState} BoardState */
/** @typedef {import("./evolve.js").Bot} Bot */

export class BotList extends HTMLElement {
  #list = element("ul", { class: "bots", "aria-label": "Bots" });
  #empty = element("p", { class: "empty" }, "No bots. Add one with “+ Bot”.");

  connectedCallback() {
    this.#empty.hidden = true;
    this.replaceChildren(this.#list, this.#empty);
  }

  /** @param {BoardState} board */
  show(board) {
    const bots = board.bots.list;
    this.#empty.hidden = bots.length > 0;
    arrange(
      this.#list,
      bots,
      (bot) => bot.id,
      (bot) => itemOf(bot),
      (item, bot, index) => describe(item, bot, index, board),
    );
  }

  /** Updates the progress bars only. @param {BoardState} board */
  tick(board) {
    for (const item of this.#list.children) {
      const state = board.bots.bots.get(item.getAttribute("data-key") ?? "");
      const order = board.orders.get(state?.currentOrderId ?? null);
      if (state === undefined || order?.dueAt == null || order.processingStartedAt === null) continue;
      const wholeMs = Date.parse(order.dueAt) - Date.parse(order.processingStartedAt);
      const done = wholeMs > 0 ? 1 - Math.min(1, state.remainingMs / wholeMs) : 1;
      find(".fill", item).style.transform = `scaleX(${done.toFixed(3)})`;
      setText(find(".left", item), seconds(state.remainingMs));
    }
  }
}

/** @param {number} index */
export function botName(index) {
  return `Bot ${index + 1}`;
}

function itemOf(/** @type {Bot} */ bot) {
  return element(
    "li",
    { class: "bot", "data-bot": bot.id },
    element("span", { class: "name" }),
    element("span", { class: "left number", "aria-hidden": "true" }),
    element("span", { class: "what" }),
    element("div", { class: "track", "aria-hidden": "true" }, element("div", { class: "fill" })),
  );
}

/** @param {HTMLElement} item @param {Bot} bot @param {number} index @param {BoardState} board */
function describe(item, bot, index, board) {
  const state = board.bots.bots.get(bot.id);
  const order = board.orders.get(bot.currentOrderId);
  const isCooking = state?.status === "PROCESSING";
  item.dataset.status = bot.status === "DEAD" ? "DEAD" : isCooking ? "PROCESSING" : "IDLE";
  setText(find(".name", item), botName(index));
  if (bot.status === "DEAD") showOutOfService(find(".what", item), bot);
  else setText(find(".what", item), activityOf(isCooking, bot, order));
  if (isCooking) return;
  setText(find(".left", item), "");
  find(".fill", item).style.transform = order === undefined ? "" : "scaleX(1)";
}

/** Links to the page that restores the bot; the title lists its failures. @param {Element} activity @param {Bot} bot */
function showOutOfService(activity, bot) {
  const text = "out of service";
  if (activity.textContent === text) return;
  const title = `${bot.failures} failures in a row. ${bot.errors.at(-1) ?? ""}`;
  activity.replaceChildren(element("a", { href: `/ops#item/${bot.id}`, title }, text));
}

/** @param {boolean} isCooking @param {Bot} bot @param {import("./evolve.js").Order} [order] */
function activityOf(isCooking, bot, order) {
  if (bot.status === "IDLE" || order === undefined) return "idle";
  return isCooking ? `cooking #${order.orderNumber}` : `finishing #${order.orderNumber}`;
}

customElements.define("bot-list", BotList);
