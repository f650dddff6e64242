/**
 * The cards of all columns: only what changed is drawn, and a card that changes its column is seen
 * to move there. Many changes at once are drawn over several frames, so that the page stays quick.
 */

import { OrderColumn, cardOf, describe } from "./column.js";
import { compare } from "./orders.js";
import { botName } from "./strip.js";

const FRAME_MS = 8;
const MOVED_MAX = 12;
const MOVE_MS = 450;

/** @typedef {import("./evolve.js").Order} Order */
/** @typedef {import("./kitchen.js").Kitchen} Kitchen */

export class Shelf {
  /** @type {Map<string, HTMLElement>} */
  #cards = new Map();
  /** @type {Set<string>} */
  #touched = new Set();
  /** @type {Map<string, OrderColumn>} */
  #columns = new Map();
  #stills = matchMedia("(prefers-reduced-motion: reduce)");
  #isWaiting = false;

  /** @param {Kitchen} kitchen @param {(text: string) => void} tell says it to who cannot see it */
  constructor(kitchen, tell) {
    this.kitchen = kitchen;
    this.tell = tell;
    for (const column of document.querySelectorAll("order-column")) {
      this.#columns.set(column.getAttribute("status") ?? "", /** @type {OrderColumn} */ (column));
    }
  }

  /** These orders are to be drawn anew. @param {string[]} ids */
  touch(ids) {
    for (const id of ids) this.#touched.add(id);
    if (this.#isWaiting || this.#touched.size === 0) return;
    this.#isWaiting = true;
    requestAnimationFrame(() => this.#draw());
  }

  count() {
    const { orders, cut } = this.kitchen;
    this.#columns.get("PENDING")?.total(orders.pendingOrders.length, cut.includes("PENDING"));
    this.#columns.get("PROCESSING")?.total(orders.processingOrders.length, cut.includes("PROCESSING"));
    this.#columns.get("COMPLETE")?.total(orders.completeOrders.length, cut.includes("COMPLETE"));
  }

  #draw() {
    this.#isWaiting = false;
    const until = performance.now() + FRAME_MS;
    const names = new Map(this.kitchen.bots.list.map((bot, index) => [bot.id, botName(index)]));
    /** @type {{card: HTMLElement, from: DOMRect}[]} */ const moved = [];
    for (const id of this.#touched) {
      this.#touched.delete(id);
      const from = this.#drawOne(id, names, moved.length < MOVED_MAX);
      if (from !== null) moved.push(from);
      if (performance.now() > until) break;
    }
    for (const { card, from } of moved) slide(card, from);
    this.touch([]);
  }

  /**
   * @param {string} id
   * @param {Map<string, string>} names of the bots
   * @param {boolean} mayMove
   * @returns {{card: HTMLElement, from: DOMRect} | null} where it was, if it is seen to move
   */
  #drawOne(id, names, mayMove) {
    const order = this.kitchen.orders.get(id);
    const column = order && this.#columns.get(order.status);
    const known = this.#cards.get(id);
    if (order === undefined || column === undefined) {
      known?.remove();
      this.#cards.delete(id);
      return null;
    }
    const card = known ?? cardOf(order);
    this.#cards.set(id, card);
    describe(card, order, names.get(order.botId ?? "") ?? "");
    if (known !== undefined && column.has(known)) return null;
    const from = known && mayMove && !this.#stills.matches ? known.getBoundingClientRect() : null;
    column.place(card, this.#cardAfter(order, column));
    if (known !== undefined) this.tell(`Order ${order.orderNumber} is ${order.status}`);
    return from && { card, from };
  }

  /** The card of the next order in the column that has one there already. */
  #cardAfter(/** @type {Order} */ order, /** @type {OrderColumn} */ column) {
    const last = this.kitchen.orders.get(column.lastId);
    // Mostly it comes last, and while a full board is drawn there is no card behind it to be found.
    if (last === undefined || (last.status === order.status && compare(last, order) < 0)) return null;
    for (let next = this.kitchen.orders.after(order); next; next = this.kitchen.orders.after(next)) {
      const card = this.#cards.get(next.id);
      if (card !== undefined && column.has(card)) return card;
    }
    return null;
  }
}

/**
 * A copy flies over the columns, whose own content ends at their edges.
 *
 * @param {HTMLElement} card
 * @param {DOMRect} from where it was until now
 */
function slide(card, from) {
  const to = card.getBoundingClientRect();
  const copy = /** @type {HTMLElement} */ (card.cloneNode(true));
  copy.classList.add("flying");
  copy.setAttribute("aria-hidden", "true");
  copy.removeAttribute("data-order");
  Object.assign(copy.style, { left: `${to.left}px`, top: `${to.top}px`, width: `${to.width}px` });
  document.body.append(copy);
  card.classList.add("awaited");
  const shift = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
  const flight = copy.animate([{ transform: shift }, { transform: "none" }], {
    duration: MOVE_MS,
    easing: "cubic-bezier(0.2, 0.7, 0.2, 1)",
  });
  flight.onfinish = () => {
    copy.remove();
    card.classList.remove("awaited");
  };
}
