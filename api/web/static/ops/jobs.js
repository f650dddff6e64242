/** Jobs: filter by queue, type, subject, tag and status; bulk retry and cancel. */

import { read } from "../kit/client.js";
import { arrange, element, find } from "../kit/element.js";
import { clock } from "../kit/time.js";
import { BulkDialog } from "./bulk.js";
import { Filters } from "./filters.js";
import { View, badge, fill, heading, itemLink, queryOf, table } from "./view.js";

const PAGE = 50;
const SHOWN_MAX = 1000;
const STATUSES = {
  "": "any",
  PENDING: "pending",
  PROCESSING: "processing",
  DEAD: "dead",
  COMPLETED: "completed",
  CANCELLED: "cancelled",
};
const RETRIED = ["DEAD", "CANCELLED"];
const CANCELLED = ["PENDING", "PROCESSING", "DEAD"];

/**
 * @typedef {object} Job
 * @property {string} id
 * @property {string} queue
 * @property {string} type
 * @property {string} status
 * @property {string | null} subject
 * @property {string[]} tags
 * @property {number} attempts
 * @property {number} attemptsMax
 * @property {string | null} runAt
 * @property {string | null} leaseUntil
 * @property {string | null} workerId
 * @property {string | null} error
 * @property {unknown} payload
 * @property {unknown} result
 * @property {string} createdAt
 * @property {string} updatedAt
 */

export class JobsView extends View {
  heading = "Jobs";
  #filters = new Filters("jobs", {
    status: { label: "Status", choices: STATUSES },
    queue: { label: "Queue" },
    type: { label: "Type" },
    subject: { label: "Subject" },
    tag: { label: "Tag" },
  });
  #table = table("Jobs", ["Job", "Status", "Queue", "Type", "Subject", "Tags", "Attempts", "When", "Error"]);
  #empty = element("p", { class: "empty" }, "No matching jobs.");
  #more = element("button", { type: "button", hidden: true }, "Show more");
  #dialog = new BulkDialog();
  #retry = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, "Retry all …"));
  #cancel = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "danger" }, "Cancel all …"));
  #hint = element("p", { class: "hint" });
  #limit = PAGE;

  build() {
    this.#more.addEventListener("click", () => {
      this.#limit = Math.min(SHOWN_MAX, this.#limit + 4 * PAGE);
      void this.again();
    });
    this.#onPress(this.#retry, "Retry", "retried", "/api/jobs/retry");
    this.#onPress(this.#cancel, "Cancel", "cancelled", "/api/jobs/cancel");
    this.#dialog.addEventListener("done", () => this.again());
    const actions = element("div", { class: "actions" }, this.#retry, this.#cancel);
    return [heading("Jobs", actions), this.#filters.form, this.#hint, this.#empty, this.#table.box, this.#more, this.#dialog];
  }

  /** @param {string} argument */
  turnTo(argument) {
    this.argument = argument;
    this.#limit = PAGE;
    return true;
  }

  async show() {
    this.#filters.read(this.argument);
    this.#allow();
    const chosen = this.#filters.chosen;
    const { jobs, nextCursor } = await read(`/api/jobs?${queryOf({ ...chosen, limit: String(this.#limit) })}`);
    this.#empty.hidden = jobs.length > 0;
    this.#table.box.hidden = jobs.length === 0;
    this.#more.hidden = nextCursor === null || this.#limit >= SHOWN_MAX;
    arrange(this.#table.body, /** @type {Job[]} */ (jobs), (job) => job.id, rowOf, describe);
  }

  /** Enables only the actions that the chosen status allows. */
  #allow() {
    const status = this.#filters.chosen.status ?? "";
    this.#retry.disabled = !RETRIED.includes(status);
    this.#cancel.disabled = !CANCELLED.includes(status);
    const hint = status === "" ? "Choose a status to retry or cancel all matching jobs." : "";
    fill(this.#hint, hint);
    this.#hint.hidden = hint === "";
  }

  /** @param {HTMLButtonElement} button @param {string} verb @param {string} done @param {string} path */
  #onPress(button, verb, done, path) {
    button.addEventListener("click", () => {
      this.#filters.apply();
      this.#allow();
      if (button.disabled) return;
      const { chosen: filter, words: which } = this.#filters;
      const work = { verb, done, path, filter, which, isDangerous: verb === "Cancel" };
      void find("daybook-notices").attempt(button, () => this.#dialog.ask(work));
    });
  }
}

/** @param {Job} job */
function rowOf(job) {
  const cells = Array.from({ length: 8 }, () => element("td"));
  return element("tr", {}, element("th", { scope: "row" }, itemLink(job.id)), ...cells);
}

/** @param {Element} row @param {Job} job */
function describe(row, job) {
  const [, status, queue, type, subject, tags, attempts, when, error] = row.children;
  fill(status, badge(job.status));
  fill(queue, job.queue);
  fill(type, job.type);
  fill(subject, job.subject ?? "–");
  fill(tags, job.tags.join(", ") || "–");
  fill(attempts, `${job.attempts} of ${job.attemptsMax}`);
  fill(when, whenOf(job));
  fill(error, element("span", { class: "cut", title: job.error ?? "" }, job.error ?? "–"));
}

/** @param {Job} job */
function whenOf(job) {
  if (job.leaseUntil !== null) return `leased until ${clock(job.leaseUntil)}`;
  if (job.status === "PENDING" && job.runAt !== null) return `from ${clock(job.runAt)}`;
  return clock(job.updatedAt);
}

customElements.define("ops-jobs", JobsView);
