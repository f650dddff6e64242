/** `<order-column status="PENDING">`: the orders of one status, each a card that keeps its element. */

import { element, find, say } from "../kit/element.js";
import { clock, count } from "../kit/time.js";

/** @typedef {import("./evolve.js").Order} Order */

export class OrderColumn extends HTMLElement {
  #amount = element("span", { class: "number" }, "0");
  #list = element("ol", { tabindex: "0" });
  #empty = element("p", { class: "empty" });
  #more = element("p", { class: "empty", hidden: true });

  connectedCallback() {
    const status = this.getAttribute("status") ?? "";
    this.#list.setAttribute("aria-label", `${status}, in queue order`);
    this.#empty.textContent = "Reading the orders …";
    this.replaceChildren(element("h2", {}, status, this.#amount), this.#empty, this.#list, this.#more);
  }

  /** @param {Element} card @param {Element | null} before */
  place(card, before) {
    this.#list.insertBefore(card, before);
  }

  /** @param {number} amount @param {boolean} isCut whether there are more than these */
  total(amount, isCut) {
    say(this.#amount, isCut ? `${count(amount)}+` : count(amount));
    this.#empty.hidden = amount > 0;
    say(this.#empty, this.getAttribute("empty") ?? "");
  }

  /** The id of the last order that has a card here. @returns {string | null} */
  get lastId() {
    return this.#list.lastElementChild?.getAttribute("data-order") ?? null;
  }

  /** Whether this card is in this column. @param {Element} card */
  has(card) {
    return card.parentElement === this.#list;
  }
}

/** @param {Order} order @returns {HTMLElement} */
export function cardOf(order) {
  const badge = order.type === "VIP" ? [element("span", { class: "badge vip" }, "VIP")] : [];
  return element(
    "li",
    { class: "order", "data-order": order.id, "data-kind": order.type },
    element("span", { class: "number" }, `#${order.orderNumber}`),
    ...badge,
    element("span", { class: "note" }),
  );
}

/** @param {Element} card @param {Order} order @param {string} botName */
export function describe(card, order, botName) {
  const notes = {
    PENDING: order.attempts > 0 ? `tried ${order.attempts}×` : clock(order.createdAt),
    PROCESSING: botName,
    COMPLETE: order.completedAt === null ? "" : clock(order.completedAt),
    DEAD: "",
  };
  say(find(".note", card), notes[order.status]);
}

customElements.define("order-column", OrderColumn);
