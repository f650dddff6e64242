/** `<bot-strip>`: all bots with their activity and progress. */

import { arrange, element, find, say } from "../kit/element.js";
import { seconds } from "../kit/time.js";

/** @typedef {import("./kitchen.js").Kitchen} Kitchen */
/** @typedef {import("./evolve.js").Bot} Bot */

export class BotStrip extends HTMLElement {
  #list = element("ul", { class: "bots", "aria-label": "Bots" });
  #empty = element("p", { class: "empty" }, "No bots. Add one with “+ Bot”.");

  connectedCallback() {
    this.#empty.hidden = true;
    this.replaceChildren(this.#list, this.#empty);
  }

  /** @param {Kitchen} kitchen */
  show(kitchen) {
    const bots = kitchen.bots.list;
    this.#empty.hidden = bots.length > 0;
    arrange(
      this.#list,
      bots,
      (bot) => bot.id,
      (bot) => itemOf(bot),
      (item, bot, index) => describe(item, bot, index, kitchen),
    );
  }

  /** Updates the progress bars only. @param {Kitchen} kitchen */
  tick(kitchen) {
    for (const item of this.#list.children) {
      const state = kitchen.bots.bots.get(item.getAttribute("data-key") ?? "");
      const order = kitchen.orders.get(state?.currentOrderId ?? null);
      if (state === undefined || order?.dueAt == null || order.processingStartedAt === null) continue;
      const wholeMs = Date.parse(order.dueAt) - Date.parse(order.processingStartedAt);
      const done = wholeMs > 0 ? 1 - Math.min(1, state.remainingMs / wholeMs) : 1;
      find(".fill", item).style.transform = `scaleX(${done.toFixed(3)})`;
      say(find(".left", item), seconds(state.remainingMs));
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

/** @param {HTMLElement} item @param {Bot} bot @param {number} index @param {Kitchen} kitchen */
function describe(item, bot, index, kitchen) {
  const state = kitchen.bots.bots.get(bot.id);
  const order = kitchen.orders.get(bot.currentOrderId);
  const isCooking = state?.status === "PROCESSING";
  item.dataset.status = bot.status === "DEAD" ? "DEAD" : isCooking ? "PROCESSING" : "IDLE";
  say(find(".name", item), botName(index));
  if (bot.status === "DEAD") tellWhy(find(".what", item), bot);
  else say(find(".what", item), whatItDoes(isCooking, bot, order));
  if (isCooking) return;
  say(find(".left", item), "");
  find(".fill", item).style.transform = order === undefined ? "" : "scaleX(1)";
}

/** Links to the page that restores the bot; the title lists its failures. @param {Element} what @param {Bot} bot */
function tellWhy(what, bot) {
  const text = "out of service";
  if (what.textContent === text) return;
  const title = `${bot.failures} failures in a row. ${bot.errors.at(-1) ?? ""}`;
  what.replaceChildren(element("a", { href: `/ops#item/${bot.id}`, title }, text));
}

/** @param {boolean} isCooking @param {Bot} bot @param {import("./evolve.js").Order} [order] */
function whatItDoes(isCooking, bot, order) {
  if (bot.status === "IDLE" || order === undefined) return "idle";
  return isCooking ? `cooking #${order.orderNumber}` : `finishing #${order.orderNumber}`;
}

customElements.define("bot-strip", BotStrip);
