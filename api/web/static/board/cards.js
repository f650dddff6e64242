/**
 * The cards of all columns. Long columns add cards while scrolling, so a board of thousands is as fast
 * as one of twenty. A card that changes its column is animated.
 */

import { OrderColumn, cardOf, describe } from "./column.js";
import { botName } from "./bot_list.js";

const MOVED_MAX = 12;
const MOVE_MS = 450;

/** @typedef {import("./evolve.js").Order} Order */
/** @typedef {import("./state.js").BoardState} BoardState */

export class OrderCards {
  /** @type {Map<string, HTMLElement>} */
  #cards = new Map();
  /** Orders to redraw. @type {Set<string>} */
  #touched = new Set();
  #columns = /** @type {OrderColumn[]} */ ([...document.querySelectorAll("order-column")]);
  #stills = matchMedia("(prefers-reduced-motion: reduce)");
  #isWaiting = false;

  /** @param {BoardState} board @param {(text: string) => void} announce announces it to screen readers */
  constructor(board, announce) {
    this.board = board;
    this.announce = announce;
    for (const column of this.#columns) column.addEventListener("more", () => this.touch([]));
  }

  /** Marks orders for redrawing. @param {string[]} ids */
  touch(ids) {
    for (const id of ids) this.#touched.add(id);
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#isWaiting = false;
    const names = new Map(this.board.bots.list.map((bot, index) => [bot.id, botName(index)]));
    const positions = this.#positionsOfTouched();
    for (const column of this.#columns) {
      const orders = this.#ordersOf(column);
      column.total(orders.length, this.board.cut.includes(column.status));
      column.fill(orders.slice(0, column.shownMax).map((order) => this.#card(order, names)));
    }
    for (const id of this.#touched) if (!this.#cards.get(id)?.isConnected) this.#cards.delete(id);
    this.#touched.clear();
    for (const [card, { column, from }] of positions) {
      if (card.isConnected && card.closest("order-column") !== column) slide(card, from);
    }
  }

  /** @param {OrderColumn} column @returns {Order[]} */
  #ordersOf({ status }) {
    const { pendingOrders, processingOrders, completeOrders } = this.board.orders;
    if (status === "PENDING") return pendingOrders;
    return status === "PROCESSING" ? processingOrders : completeOrders;
  }

  /** The positions of the first few before redrawing. */
  #positionsOfTouched() {
    /** @type {Map<HTMLElement, {column: Element | null, from: DOMRect}>} */
    const positions = new Map();
    if (this.#stills.matches) return positions;
    for (const id of this.#touched) {
      const card = this.#cards.get(id);
      if (!card?.isConnected) continue;
      positions.set(card, { column: card.closest("order-column"), from: card.getBoundingClientRect() });
      if (positions.size === MOVED_MAX) break;
    }
    return positions;
  }

  /** @param {Order} order @param {Map<string, string>} names of the bots */
  #card(order, names) {
    const known = this.#cards.get(order.id);
    if (known !== undefined && !this.#touched.has(order.id)) return known;
    const card = known ?? cardOf(order);
    this.#cards.set(order.id, card);
    describe(card, order, names.get(order.botId ?? "") ?? "");
    if (known !== undefined) this.announce(`Order ${order.orderNumber} is ${order.status}`);
    return card;
  }
}

/**
 * Animates a copy above the columns, which clip their content.
 *
 * @param {HTMLElement} card
 * @param {DOMRect} from its previous position
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
