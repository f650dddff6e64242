/**
 * Time travel: the board as it was at any position of the log.
 *
 * A step is one event. The server folds the log up to the position (`asOf`); the page draws it, and
 * requests the next position once the last response has arrived.
 */

import { read } from "../kit/client.js";
import { arrange, element, find, setText } from "../kit/element.js";
import { clock, count } from "../kit/time.js";
import { View, badge, heading } from "./view.js";

/** @typedef {{id: string, orderNumber: number, type: string, status: string, botId: string | null}} Order */
/** @typedef {{id: string, status: string, currentOrderId: string | null}} Bot */

const STATUSES = ["PENDING", "PROCESSING", "COMPLETE", "DEAD"];
const SHOWN_MAX = 500;
// After all events: the current state.
const LATEST = "9000-01-01T00:00:00Z";
const SPEEDS = { 1: "1 event/s", 5: "5 events/s", 20: "20 events/s", 100: "100 events/s" };
const TICK_MS = 200;
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

export class PastView extends View {
  heading = "Time travel";
  #slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Position of the log" }));
  #message = element("output", { class: "moment", "aria-live": "polite" });
  #play = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "primary" }, "Play"));
  #speed = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Speed" }, ...Object.entries(SPEEDS).map(([value, name]) => element("option", { value }, name))));
  #instant = /** @type {HTMLInputElement} */ (element("input", { type: "datetime-local", step: 1, "aria-label": "Moment" }));
  #bots = element("ul", { class: "bots" });
  #lists = new Map(STATUSES.map((status) => [status, columnOf(status)]));
  /** @type {string | null} the next position or instant to show */
  #wanted = null;
  #isTravelling = false;
  #isFollowing = true;
  #gone = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  build() {
    this.#speed.value = "5";
    this.#slider.addEventListener("input", () => this.#go(this.#slider.value));
    this.#play.addEventListener("click", () => (this.#timer === undefined ? this.#start() : this.#pause()));
    const back = this.#button("Back", () => this.#step(-1));
    const on = this.#button("Forward", () => this.#step(1));
    const now = this.#button("Now", () => {
      this.#isFollowing = true;
      this.#pause();
      void this.again();
    });
    const goTo = this.#button("Go", () => {
      if (this.#instant.value !== "") this.#go(new Date(this.#instant.value).toISOString());
    });
    const buttons = element("div", { class: "travel" }, this.#play, back, on, now, this.#speed, this.#instant, goTo);
    const columns = element("div", { class: "columns then" }, ...[...this.#lists.values()].map(({ box }) => box));
    return [heading("Time travel", this.#message), this.#slider, buttons, this.#bots, columns];
  }

  disconnectedCallback() {
    this.#pause();
  }

  async show() {
    const { asOf } = await read(`/api/bots?asOf=${LATEST}`);
    this.#slider.max = String(asOf.position);
    if (this.#isFollowing) await this.#travel(String(asOf.position));
  }

  /** @param {string} name @param {() => void} act */
  #button(name, act) {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", act);
    return button;
  }

  #start() {
    const isAtEnd = Number(this.#slider.value) >= Number(this.#slider.max);
    if (isAtEnd) this.#go("0");
    this.#isFollowing = false;
    setText(this.#play, "Pause");
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  #pause() {
    clearInterval(this.#timer);
    this.#timer = undefined;
    setText(this.#play, "Play");
  }

  /** Waits for the previous response: slow responses slow the playback. */
  #tick() {
    if (this.#isTravelling) return;
    this.#gone += (Number(this.#speed.value) * TICK_MS) / 1000;
    const steps = Math.floor(this.#gone);
    if (steps === 0) return;
    this.#gone -= steps;
    this.#step(steps);
    if (Number(this.#slider.value) >= Number(this.#slider.max)) this.#pause();
  }

  /** @param {number} steps */
  #step(steps) {
    const to = Number(this.#slider.value) + steps;
    this.#go(String(Math.min(Math.max(0, to), Number(this.#slider.max))));
  }

  /** @param {string} moment a position or an instant */
  #go(moment) {
    this.#isFollowing = false;
    if (/^\d+$/.test(moment)) this.#slider.value = moment;
    this.#travel(moment).catch((error) => {
      this.#pause();
      find("daybook-notices").show(error);
    });
  }

  /** Of all requests that arrive meanwhile, only the last is shown. @param {string} moment */
  async #travel(moment) {
    this.#wanted = moment;
    if (this.#isTravelling) return;
    this.#isTravelling = true;
    try {
      while (this.#wanted !== null) {
        const next = this.#wanted;
        this.#wanted = null;
        await this.#showAt(next);
      }
    } finally {
      this.#isTravelling = false;
    }
  }

  /** @param {string} moment */
  async #showAt(moment) {
    const { orders, asOf } = await read(`/api/orders?asOf=${encodeURIComponent(moment)}&limit=${SHOWN_MAX}`);
    const { bots } = await read(`/api/bots?asOf=${asOf.position}`);
    if (this.#wanted !== null) return;
    this.#slider.value = String(asOf.position);
    const at = asOf.at === null ? "before the first event" : `${DAY.format(new Date(asOf.at))}, ${clock(asOf.at)}`;
    setText(this.#message, `Position ${count(asOf.position)} of ${count(Number(this.#slider.max))} · ${at}`);
    this.dataset.position = String(asOf.position);
    for (const [status, { list, amount, box }] of this.#lists) {
      const those = /** @type {Order[]} */ (orders).filter((order) => order.status === status);
      box.hidden = status === "DEAD" && those.length === 0;
      setText(amount, count(those.length));
      arrange(list, those, (order) => order.id, orderOf, () => {});
    }
    const numbers = new Map(/** @type {Order[]} */ (orders).map((order) => [order.id, order.orderNumber]));
    arrange(this.#bots, /** @type {Bot[]} */ (bots).toReversed(), (bot) => bot.id, botOf, (item, bot, index) => describeBot(item, bot, index, numbers));
  }
}

/** @param {string} status */
function columnOf(status) {
  const list = element("ol", { "data-status": status });
  const amount = element("span", { class: "badge" }, "0");
  const box = element("section", { class: "column", "data-status": status }, element("h3", {}, status, amount), list);
  return { list, amount, box };
}

/** @param {Order} order */
function orderOf(order) {
  const kind = order.type === "VIP" ? [badge("VIP")] : [];
  return element("li", { class: "order", "data-kind": order.type }, element("span", { class: "number" }, `#${order.orderNumber}`), ...kind);
}

function botOf() {
  return element("li", { class: "bot" }, element("span", { class: "name" }), element("span", { class: "what" }));
}

/** @param {Element} item @param {Bot} bot @param {number} index @param {Map<string, number>} numbers */
function describeBot(item, bot, index, numbers) {
  item.setAttribute("data-status", bot.status);
  setText(find(".name", item), `Bot ${index + 1}`);
  const number = bot.currentOrderId === null ? undefined : numbers.get(bot.currentOrderId);
  const rests = bot.status === "DEAD" ? "out of service" : "idle";
  setText(find(".what", item), bot.currentOrderId === null ? rests : `cooking #${number ?? "…"}`);
}

customElements.define("ops-past", PastView);
