/**
 * The state of the board, kept up to date by the stream, the leader tab or polling.
 *
 * The leader of the browser's tabs holds the stream and forwards changes to the others. Each tab folds
 * the same events, so all show the same.
 */

import { read } from "../kit/client.js";
import { Feed, StreamSource } from "../kit/feed.js";
import { load, save } from "../kit/storage.js";
import { ServerClock } from "../kit/time.js";
import { BotStore } from "./bots.js";
import { Claims } from "./claims.js";
import { Leadership } from "./leader.js";
import { OrderStore } from "./orders.js";

export const CHANNEL = "feedme-bot-sync";
export const STATE_KEY = "feedme-board";
export const COMPLETE_EVENT = "bot-order-complete";
const TICK_MS = 100;
const SAVE_MS = 2000;
/** Pending orders kept in the saved state: thousands would be slow. */
const SAVED_MAX = 300;
const REFRESH_DELAY_MS = 250;
const ANNOUNCED_MAX = 1000;

/** @typedef {import("../kit/feed.js").Change} Change */
/** @typedef {import("../kit/feed.js").FeedState} FeedState */
/** @typedef {import("../kit/feed.js").Listener} Listener */
/** @typedef {import("../kit/feed.js").Source} Source */
/**
 * @typedef {object} Watcher draws the board
 * @property {(ids: string[]) => void} orders
 * @property {() => void} bots
 * @property {(position: number, ageMs?: number) => void} position
 * @property {(state: FeedState) => void} state
 * @property {(isLeader: boolean) => void} leader
 */

/** Changes forwarded by the leader. @implements {Source} */
class ChannelSource {
  /** @type {Listener | null} */
  listener = null;

  /** @param {Listener} listener */
  open(listener) {
    this.listener = listener;
    queueMicrotask(() => listener.opened());
  }

  close() {
    this.listener = null;
  }
}

export class BoardState {
  clock = new ServerClock();
  orders = new OrderStore((ids) => this.watcher.orders(ids));
  bots = new BotStore({ orderOf: (id) => this.orders.get(id), now: () => this.clock.now() });
  /** The time of the saved state, if it is shown. */
  savedAt = /** @type {number | null} */ (null);
  /** The statuses with truncated lists. @type {string[]} */
  cut = [];
  #position = 0;
  #channel = new BroadcastChannel(CHANNEL);
  #forwarded = new ChannelSource();
  #claims = new Claims();
  #leadership = new Leadership(
    (lease) => this.#post({ type: "leader", leaderId: lease?.leaderId ?? null, expiresAt: lease?.expiresAt ?? 0 }),
    (isLeader) => this.#lead(isLeader),
  );
  #feed = new Feed({
    refresh: () => this.#read(),
    onChanges: (changes, position) => this.#apply(changes, position),
    onState: (state) => this.watcher.state(state),
  });
  /** @type {Change[] | null} the batch to forward */
  #forwarding = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #refreshTimer;
  #isChanged = false;
  /** The claims already announced as complete. @type {Set<string>} */
  #announced = new Set();
  #leaderId = "";

  /** @param {Watcher} watcher */
  constructor(watcher) {
    this.watcher = watcher;
  }

  start() {
    this.#restore();
    this.#channel.onmessage = (event) => this.#onMessage(event.data);
    this.#feed.use(this.#forwarded);
    this.#leadership.start();
    setInterval(() => this.#tick(), TICK_MS);
    setInterval(() => this.#save(), SAVE_MS);
    // A suspended tab may have missed changes.
    document.addEventListener("visibilitychange", () => document.hidden || this.#feed.refresh());
  }

  async #read() {
    const askedAt = Date.now();
    const board = await read("/api/board");
    this.clock.sync(board.serverNow, askedAt);
    this.cut = board.cut;
    this.savedAt = null;
    this.bots.setBots(board.bots);
    this.orders.setOrders(board.orders);
    this.#changed(board.position);
  }

  /** @param {Change[]} changes @param {number} position */
  #apply(changes, position) {
    let isWhole = true;
    for (const change of changes) {
      const store = change.topic.startsWith("order.") ? this.orders : this.bots;
      isWhole = store.apply(change) && isWhole;
      if (change.topic === "order.completed") this.#announceCompletion(this.orders.get(change.id));
    }
    if (!isWhole) this.#refreshTimer ??= setTimeout(() => this.#refresh(), REFRESH_DELAY_MS);
    this.#forward(changes, position);
    this.#changed(position, changes.length > 0);
  }

  #refresh() {
    this.#refreshTimer = undefined;
    void this.#feed.refresh();
  }

  #changed(/** @type {number} */ position, isChanged = true) {
    this.#position = Math.max(this.#position, position);
    this.watcher.position(position);
    if (!isChanged) return;
    this.#isChanged = true;
    this.#tick();
    this.watcher.bots();
  }

  /** Advances the countdowns; the leader also announces completions and claims orders. */
  #tick() {
    const { changed, over } = this.bots.tick();
    if (changed.length > 0) this.watcher.bots();
    if (!this.bots.isLeader) return;
    for (const botId of changed) this.#post({ type: "bot", botId, state: this.bots.bots.get(botId) });
    for (const orderId of over) this.#announceCompletion(this.orders.get(orderId));
    void this.#claims.claim(this.bots.list, this.orders.pendingOrders.length);
  }

  /**
   * Announces each completed claim once: when its time elapses or the server confirms, whichever is
   * first.
   *
   * @param {import("./evolve.js").Order | undefined} order
   */
  #announceCompletion(order) {
    if (!this.bots.isLeader || order?.claimId == null || this.#announced.has(order.claimId)) return;
    if (this.#announced.size >= ANNOUNCED_MAX) this.#announced.clear();
    this.#announced.add(order.claimId);
    const detail = { botId: order.botId, orderId: order.id };
    dispatchEvent(new CustomEvent(COMPLETE_EVENT, { detail }));
    this.#post({ type: "completion", ...detail });
  }

  /** @param {boolean} isLeader */
  #lead(isLeader) {
    this.bots.isLeader = isLeader;
    this.#feed.use(isLeader ? new StreamSource(["order", "bot"]) : this.#forwarded);
    this.watcher.leader(isLeader);
  }

  /** @param {Change[]} changes @param {number} position */
  #forward(changes, position) {
    if (!this.bots.isLeader) return;
    if (this.#forwarding === null) {
      this.#forwarding = [];
      setTimeout(() => {
        this.#post({ type: "changes", changes: this.#forwarding, position: this.#position });
        this.#forwarding = null;
      });
    }
    this.#forwarding.push(...changes);
    this.#position = Math.max(this.#position, position);
  }

  /** A message from another tab. @param {any} message */
  #onMessage(message) {
    if (message.type === "changes") this.#forwarded.listener?.received(message.changes, message.position);
    if (message.type === "bot") this.bots.bots.set(message.botId, message.state);
    if (message.type === "completion") this.bots.rest(message.botId);
    if (message.type !== "leader") return;
    this.#leadership.look();
    // During a change of leaders a change may have been forwarded by neither.
    if (message.leaderId !== null && message.leaderId !== this.#leaderId) void this.#feed.refresh();
    this.#leaderId = message.leaderId ?? "";
  }

  /** @param {object} message */
  #post(message) {
    this.#channel.postMessage(message);
  }

  #save() {
    if (!this.#isChanged || !this.bots.isLeader) return;
    this.#isChanged = false;
    const { pendingOrders, processingOrders, completeOrders, deadOrders } = this.orders;
    const orders = [...pendingOrders.slice(0, SAVED_MAX), ...processingOrders, ...completeOrders, ...deadOrders];
    const cut = pendingOrders.length > SAVED_MAX ? [...this.cut, "PENDING"] : this.cut;
    save(STATE_KEY, {
      orders,
      cut,
      bots: this.bots.list,
      position: this.#position,
      savedAt: this.clock.now(),
    });
  }

  /** The saved state, shown until the server responds. */
  #restore() {
    const state = load(STATE_KEY);
    if (![state?.orders, state?.bots, state?.cut].every(Array.isArray)) return;
    this.savedAt = state.savedAt;
    this.cut = state.cut;
    this.bots.setBots(state.bots);
    this.orders.setOrders(state.orders);
    this.bots.tick();
    this.watcher.bots();
    this.watcher.position(state.position, Date.now() - state.savedAt);
  }
}
