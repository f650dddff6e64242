/** `<order-column status="PENDING">`: the orders of one status; each card keeps its element. */

import { element, find, setText } from "../kit/element.js";
import { clock, count } from "../kit/time.js";

/** @typedef {import("./evolve.js").Order} Order */

const MORE = 100;
// Adds cards before the last one scrolls into view.
const NEAR_PX = 1500;

export class OrderColumn extends HTMLElement {
  /** Maximum number of cards; an event `more` requests more. */
  shownMax = MORE;
  #total = 0;
  #amount = element("span", { class: "number" }, "0");
  #list = element("ol", { tabindex: "0" });
  #empty = element("p", { class: "empty" });

  connectedCallback() {
    this.#list.setAttribute("aria-label", `${this.status}, in queue order`);
    this.#list.addEventListener("scroll", () => this.#grow(), { passive: true });
    this.#empty.textContent = "Loading orders …";
    this.replaceChildren(element("h2", {}, this.status, this.#amount), this.#empty, this.#list);
  }

  get status() {
    return this.getAttribute("status") ?? "";
  }

  /** Shows exactly these cards, in this order. @param {Element[]} cards */
  fill(cards) {
    const wanted = new Set(cards);
    // Removals first, so that the cards behind them stay in place.
    for (const card of [...this.#list.children]) if (!wanted.has(card)) card.remove();
    cards.forEach((card, index) => {
      const there = this.#list.children[index] ?? null;
      if (there !== card) this.#list.insertBefore(card, there);
    });
  }

  /** @param {number} amount @param {boolean} isCut whether the list is truncated */
  total(amount, isCut) {
    this.#total = amount;
    setText(this.#amount, isCut ? `${count(amount)}+` : count(amount));
    this.#empty.hidden = amount > 0;
    setText(this.#empty, this.getAttribute("empty") ?? "");
  }

  #grow() {
    const { scrollTop, clientHeight, scrollHeight } = this.#list;
    if (this.shownMax >= this.#total || scrollTop + clientHeight + NEAR_PX < scrollHeight) return;
    this.shownMax += MORE;
    this.dispatchEvent(new Event("more"));
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
  setText(find(".note", card), notes[order.status]);
}

customElements.define("order-column", OrderColumn);
