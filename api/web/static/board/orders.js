/** The known orders, sorted by column. */

import { evolve } from "./evolve.js";
import { ORDER_RANKS } from "./transitions.js";

/** @typedef {import("./evolve.js").Order} Order */
/** @typedef {import("../kit/feed.js").Change} Change */
/** @typedef {Order["status"]} Status */

/** Only the latest complete orders are kept; pending and processing ones all. */
const COMPLETE_MAX = 100;

/**
 * Compares two orders of one status in the server's order: pending ones VIPs first, then by number;
 * all others newest first.
 *
 * @param {Order} one
 * @param {Order} other
 */
function compare(one, other) {
  const isWaiting = one.status === "PENDING";
  if (isWaiting && one.type !== other.type) return ORDER_RANKS[one.type] - ORDER_RANKS[other.type];
  return isWaiting ? one.orderNumber - other.orderNumber : other.orderNumber - one.orderNumber;
}

/** The index of an order in a sorted list, or its insertion point. @param {Order[]} list @param {Order} order */
function placeIn(list, order) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(list[middle], order) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class OrderStore {
  /** @type {Map<string, Order>} */
  #known = new Map();
  /** @type {Record<Status, Order[]>} */
  #lists = { PENDING: [], PROCESSING: [], COMPLETE: [], DEAD: [] };

  /** @param {(ids: string[]) => void} onChange receives the ids of changed orders */
  constructor(onChange) {
    this.onChange = onChange;
  }

  get orders() {
    return [...this.pendingOrders, ...this.processingOrders, ...this.completeOrders, ...this.deadOrders];
  }
  get pendingOrders() {
    return this.#lists.PENDING;
  }
  get processingOrders() {
    return this.#lists.PROCESSING;
  }
  get completeOrders() {
    return this.#lists.COMPLETE;
  }
  get deadOrders() {
    return this.#lists.DEAD;
  }

  /** @param {string | null} id */
  get(id) {
    return id === null ? undefined : this.#known.get(id);
  }

  /** @param {Order[]} orders all there are */
  setOrders(orders) {
    const there = new Set(orders.map((order) => order.id));
    const gone = [...this.#known.keys()].filter((id) => !there.has(id));
    const touched = orders.filter((order) => this.#known.get(order.id)?.version !== order.version);
    for (const id of gone) this.#take(id);
    for (const order of touched) this.#put(order);
    this.onChange([...gone, ...touched.map((order) => order.id)]);
  }

  /** @param {Order} order */
  addOrder(order) {
    this.#put(order);
    this.onChange([order.id]);
  }

  /** @param {string} id @param {Partial<Order>} changes */
  updateOrder(id, changes) {
    const order = this.#known.get(id);
    if (order !== undefined) this.addOrder({ ...order, ...changes });
  }

  /** @param {string} id */
  removeOrder(id) {
    this.#take(id);
    this.onChange([id]);
  }

  clearOrders() {
    this.setOrders([]);
  }

  /**
   * Applies a change to an order.
   *
   * @param {Change} change
   * @returns {boolean} whether it was applied or known; if not, the snapshot must be read
   */
  apply(change) {
    const order = this.#known.get(change.id);
    if (order === undefined) return this.#applyToUnknown(change);
    if (change.version <= order.version) return true;
    if (change.version > order.version + 1) return false;
    this.#settle(evolve(order, change));
    return true;
  }

  /** @param {Change} change */
  #applyToUnknown(change) {
    if (change.topic === "order.created") this.addOrder(evolve(undefined, change));
    // Changes of orders that left the board can be ignored.
    return ["order.created", "order.deleted", "order.completed"].includes(change.topic);
  }

  /** @param {Order} order */
  #settle(order) {
    if (order.deletedAt === null) this.addOrder(order);
    else this.removeOrder(order.id);
    const surplus = this.completeOrders[COMPLETE_MAX];
    if (surplus !== undefined) this.removeOrder(surplus.id);
  }

  /** @param {Order} order */
  #put(order) {
    this.#take(order.id);
    this.#known.set(order.id, order);
    const list = this.#lists[order.status];
    list.splice(placeIn(list, order), 0, order);
  }

  /** @param {string} id */
  #take(id) {
    const order = this.#known.get(id);
    if (order === undefined) return;
    this.#known.delete(id);
    const list = this.#lists[order.status];
    list.splice(placeIn(list, order), 1);
  }
}
