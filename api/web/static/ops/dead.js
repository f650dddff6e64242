/** Dead letters: dead jobs and orders and disabled bots, with errors and histories. */

import { read, write } from "../kit/client.js";
import { arrange, element, find } from "../kit/element.js";
import { clock } from "../kit/time.js";
import { BulkDialog } from "./bulk.js";
import { Filters } from "./filters.js";
import { ReasonDialog } from "./reason_dialog.js";
import { readTimeline, showTimeline } from "./timeline.js";
import { View, heading, itemLink, pretty, queryOf } from "./view.js";

/** @typedef {import("./jobs.js").Job} Job */

const SHOWN = 50;
const ORDERS_SHOWN = 50;

export class DeadView extends View {
  heading = "Dead letters";
  #filters = new Filters("dead", {
    queue: { label: "Queue" },
    type: { label: "Type" },
    error: { label: "Error contains" },
  });
  #jobs = element("ul", { class: "letters" });
  #noJobs = element("p", { class: "empty" }, "No dead jobs.");
  #more = element("p", { class: "hint", hidden: true }, "Showing the newest jobs only. Narrow the filter to see others.");
  #orders = element("ul", { class: "letters" });
  #noOrders = element("p", { class: "empty" }, "No dead orders.");
  #bots = element("ul", { class: "letters" });
  #noBots = element("p", { class: "empty" }, "No bots out of service.");
  #ask = new ReasonDialog();
  #redrive = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, "Redrive all …"));
  #dialog = new BulkDialog();

  build() {
    this.#redrive.addEventListener("click", () => {
      this.#filters.apply();
      const { chosen: filter, words: which } = this.#filters;
      const work = { verb: "Redrive", done: "redriven", path: "/api/dlq/redrive", filter, which, isPaced: true };
      void find("daybook-notices").attempt(this.#redrive, () => this.#dialog.ask(work));
    });
    this.#dialog.addEventListener("done", () => this.again());
    return [
      heading("Dead jobs", element("div", { class: "actions" }, this.#redrive)),
      this.#filters.form,
      this.#noJobs,
      this.#jobs,
      this.#more,
      heading("Dead orders"),
      this.#noOrders,
      this.#orders,
      heading("Bots out of service"),
      this.#noBots,
      this.#bots,
      this.#dialog,
      this.#ask,
    ];
  }

  /** @param {string} argument */
  turnTo(argument) {
    this.argument = argument;
    return true;
  }

  async show() {
    this.#filters.read(this.argument);
    const query = queryOf({ ...this.#filters.chosen, limit: String(SHOWN) });
    const [dead, { orders }, { bots }] = await Promise.all([
      read(`/api/dlq?${query}`),
      read(`/api/orders?status=DEAD&limit=${ORDERS_SHOWN}`),
      read("/api/bots"),
    ]);
    const deadBots = bots.filter((/** @type {any} */ bot) => bot.status === "DEAD");
    this.#noBots.hidden = deadBots.length > 0;
    arrange(this.#bots, /** @type {any[]} */ (deadBots), (bot) => `${bot.id} ${bot.version}`, (bot) => this.#botOf(bot), () => {});
    this.#noJobs.hidden = dead.jobs.length > 0;
    this.#more.hidden = dead.nextCursor === null;
    this.#noOrders.hidden = orders.length > 0;
    this.#redrive.disabled = dead.jobs.length === 0 && dead.nextCursor === null;
    arrange(this.#jobs, /** @type {Job[]} */ (dead.jobs), (job) => `${job.id} ${job.updatedAt}`, (job) => this.#jobOf(job), () => {});
    arrange(this.#orders, /** @type {any[]} */ (orders), (order) => order.id, (order) => this.#orderOf(order), () => {});
  }

  /** @param {Job} job */
  #jobOf(job) {
    const timeline = element("ol", { class: "timeline" });
    const details = /** @type {HTMLDetailsElement} */ (
      element(
        "details",
        {},
        element("summary", {}, "Payload and history"),
        element("h4", {}, "Payload"),
        pretty(job.payload),
        element("h4", {}, "History"),
        timeline,
      )
    );
    details.addEventListener("toggle", async () => {
      if (details.open) showTimeline(timeline, (await readTimeline(job.id)).events);
    });
    const retry = this.#act("Retry", `Retry job ${job.id}`, `/api/jobs/${job.id}/retry`);
    const cancel = this.#act("Cancel", `Cancel job ${job.id}`, `/api/jobs/${job.id}/cancel`);
    return element(
      "li",
      { class: "card letter" },
      element("header", {}, element("h3", {}, `${job.queue} · ${job.type} `, itemLink(job.id)), element("div", { class: "actions" }, retry, cancel)),
      element("p", { class: "error" }, job.error ?? "No error reported."),
      element("p", { class: "hint" }, `Dead since ${clock(job.updatedAt)} after ${job.attempts} of ${job.attemptsMax} attempts${job.subject === null ? "" : ` · ${job.subject}`}`),
      details,
    );
  }

  /** @param {any} order */
  #orderOf(order) {
    const requeue = this.#act("Requeue", `Requeue order ${order.orderNumber}`, `/api/orders/${order.id}/requeue`);
    return element(
      "li",
      { class: "card letter" },
      element("header", {}, element("h3", {}, `Order #${order.orderNumber} `, itemLink(order.id)), element("div", { class: "actions" }, requeue)),
      element("p", { class: "hint" }, `${order.type} · dead since ${clock(order.updatedAt)} after ${order.attempts} attempts`),
    );
  }

  /** @param {any} bot */
  #botOf(bot) {
    const restore = /** @type {HTMLButtonElement} */ (element("button", { type: "button", "aria-label": `Restore bot ${bot.id}` }, "Restore …"));
    restore.addEventListener("click", () =>
      find("daybook-notices").attempt(restore, async () => {
        const reason = await this.#ask.ask("Restore bot", "The bot accepts orders again; its failure count restarts at 0.", "Restore");
        if (reason === null) return;
        await write("POST", `/api/bots/${bot.id}/restore`, { reason });
        await this.again();
      }),
    );
    return element(
      "li",
      { class: "card letter" },
      element("header", {}, element("h3", {}, "Bot ", itemLink(bot.id)), element("div", { class: "actions" }, restore)),
      element("p", { class: "error" }, bot.errors.at(-1) ?? "No error reported."),
      element("p", { class: "hint" }, `Out of service since ${clock(bot.deadAt)} after ${bot.failures} failures in a row`),
      element("details", {}, element("summary", {}, "Errors"), pretty(bot.errors)),
    );
  }

  /** @param {string} name @param {string} spoken @param {string} path */
  #act(name, spoken, path) {
    const button = /** @type {HTMLButtonElement} */ (element("button", { type: "button", "aria-label": spoken }, name));
    button.addEventListener("click", () =>
      find("daybook-notices").attempt(button, async () => {
        await write("POST", path);
        await this.again();
      }),
    );
    return button;
  }
}

customElements.define("ops-dead", DeadView);
