/**
 * `<bulk-dialog>`: applies an action to all jobs of a filter, after a dry run has shown their number.
 *
 * Jobs are changed page by page, so the operator can watch and stop it; refused jobs are listed with
 * the reason. It changes at most the number of jobs that the dry run counted, and the service refuses
 * it if more match by then.
 */

import { Problem, write } from "../kit/client.js";
import { element, setText } from "../kit/element.js";
import { count } from "../kit/time.js";
import { takesReason } from "./reasons.js";
import { field, itemLink } from "./view.js";

const PAGE = 100;
const REFUSALS_MAX = 20;

/**
 * @typedef {object} Work
 * @property {string} verb such as Retry
 * @property {string} done such as retried
 * @property {string} path
 * @property {Record<string, string>} filter
 * @property {string} which the filter in words
 * @property {boolean} [isPaced] whether it may be done at a pace
 * @property {boolean} [isDangerous]
 */

export class BulkDialog extends HTMLElement {
  #dialog = /** @type {HTMLDialogElement} */ (element("dialog", { "aria-labelledby": "bulk-title" }));
  #title = element("h2", { id: "bulk-title" });
  #which = element("p", { class: "hint" });
  #message = element("p", { class: "message", role: "status" });
  #pace = /** @type {HTMLInputElement} */ (element("input", { type: "number", min: 1, max: 10000, placeholder: "no limit" }));
  #reason = /** @type {HTMLInputElement} */ (element("input", { maxlength: 500, autocomplete: "off" }));
  #paceField = field("Jobs per second", this.#pace);
  #reasonField = field("Reason (recorded with each job)", this.#reason);
  #progress = /** @type {HTMLProgressElement} */ (element("progress", { hidden: true, "aria-label": "Progress" }));
  #refused = element("ul", { class: "refused" });
  #go = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "primary" }));
  #close = element("button", { type: "button" }, "Close");
  /** @type {Work | null} */
  #work = null;
  #matched = 0;
  #isExact = true;
  #isRunning = false;
  #isStopped = false;

  connectedCallback() {
    if (this.#dialog.isConnected) return;
    const actions = element("div", { class: "actions" }, this.#go, this.#close);
    this.#dialog.append(
      this.#title,
      this.#which,
      this.#message,
      this.#paceField,
      this.#reasonField,
      this.#progress,
      this.#refused,
      actions,
    );
    this.append(this.#dialog);
    this.#go.addEventListener("click", () => this.#run());
    this.#close.addEventListener("click", () => this.#leave());
    this.#dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.#leave();
    });
  }

  /** @param {Work} work */
  async ask(work) {
    this.#work = work;
    this.#isStopped = false;
    setText(this.#title, `${work.verb} jobs`);
    setText(this.#which, work.which);
    setText(this.#message, "Counting …");
    setText(this.#go, work.verb);
    this.#go.classList.toggle("danger", work.isDangerous === true);
    this.#go.classList.toggle("primary", work.isDangerous !== true);
    this.#go.disabled = true;
    this.#paceField.hidden = work.isPaced !== true;
    this.#reasonField.hidden = true;
    this.#progress.hidden = true;
    this.#refused.replaceChildren();
    this.#dialog.showModal();
    this.#close.focus();
    try {
      await this.#count(work);
    } catch (error) {
      // Shown in the dialog, which covers the page.
      setText(this.#message, /** @type {Error} */ (error).message);
    }
  }

  /** @param {Work} work */
  async #count(work) {
    const [counted, hasReason] = await Promise.all([
      write("POST", work.path, { filter: work.filter, dryRun: true }),
      takesReason(work.path),
    ]);
    this.#reasonField.hidden = !hasReason;
    this.#showCount(counted.matched, !counted.more);
  }

  /** @param {number} matched @param {boolean} isExact @param {string} [unlike] the previous count */
  #showCount(matched, isExact, unlike = "") {
    this.#matched = matched;
    this.#isExact = isExact;
    const amount = `${isExact ? "" : "At least "}${jobs(matched)}`;
    const words = `${amount} ${matched === 1 ? "matches" : "match"}${unlike}. Nothing has been changed yet.`;
    setText(this.#message, matched === 0 ? "No matching jobs." : words);
    setText(this.#go, `${this.#work?.verb} ${isExact ? "" : "the first "}${jobs(matched)}`);
    this.#go.disabled = matched === 0;
    if (this.#matched > 0) this.#go.focus();
  }

  async #run() {
    this.#isRunning = true;
    this.#go.disabled = true;
    setText(this.#close, "Stop");
    this.#progress.hidden = false;
    this.#progress.removeAttribute("value");
    if (this.#isExact) this.#progress.max = this.#matched;
    let [looked, changed, trouble] = [0, 0, ""];
    /** @type {Problem | null} */
    let grown = null;
    try {
      for await (const page of this.#pages()) {
        looked += page.matched;
        changed += page.changed ?? page.redriven;
        if (this.#isExact) this.#progress.value = looked;
        setText(this.#message, `${jobs(changed)} ${this.#work?.done} …`);
        this.#showRefused(page.results ?? []);
      }
    } catch (error) {
      if (error instanceof Problem && error.code === "count_grown") grown = error;
      trouble = ` ${/** @type {Error} */ (error).message}`;
    }
    this.#isRunning = false;
    setText(this.#close, "Close");
    this.#progress.hidden = true;
    if (grown !== null) return this.#showCount(grown.body.count, !grown.body.more, ` now, not ${count(this.#matched)}`);
    this.#showDone(looked, changed, trouble);
    this.#close.focus();
    this.dispatchEvent(new CustomEvent("done", { bubbles: true }));
  }

  /**
   * Sends pages until none is left or the counted number is reached. Only the first one carries the expected
   * count: jobs that match later sort after it or replace one that changed.
   */
  async *#pages() {
    const work = /** @type {Work} */ (this.#work);
    let cursor = null;
    let left = this.#matched;
    while (left > 0 && !this.#isStopped) {
      const where = cursor === null ? this.#expected : { cursor };
      const page = await write("POST", work.path, { ...this.#body(work, left), ...where });
      yield page;
      left -= page.matched;
      cursor = page.nextCursor;
      if (!page.more) return;
    }
  }

  /** Only an exact count is sent: an "at least" count does not show whether more jobs match by now. */
  get #expected() {
    return this.#isExact ? { expectedCount: this.#matched } : {};
  }

  /** @param {Work} work @param {number} left */
  #body(work, left) {
    const reason = this.#reason.value.trim();
    return {
      filter: work.filter,
      limit: work.isPaced ? left : Math.min(PAGE, left),
      ...(work.isPaced && this.#pace.value !== "" ? { ratePerSecond: Number(this.#pace.value) } : {}),
      ...(!this.#reasonField.hidden && reason !== "" ? { reason } : {}),
    };
  }

  /** @param {{id: string, error?: string}[]} results */
  #showRefused(results) {
    for (const one of results) {
      if (one.error === undefined || this.#refused.children.length >= REFUSALS_MAX) continue;
      this.#refused.append(element("li", {}, itemLink(one.id), ` ${one.error}`));
    }
  }

  /** @param {number} looked @param {number} changed @param {string} trouble */
  #showDone(looked, changed, trouble) {
    const left = looked - changed;
    const others = left === 0 ? "" : ` ${jobs(left)} had changed status and were skipped.`;
    setText(this.#message, `${jobs(changed)} ${this.#work?.done}.${others}${this.#isStopped ? " Stopped." : ""}${trouble}`);
  }

  #leave() {
    if (this.#isRunning) this.#isStopped = true;
    else this.#dialog.close();
  }
}

/** @param {number} amount */
function jobs(amount) {
  return amount === 1 ? "1 job" : `${count(amount)} jobs`;
}

customElements.define("bulk-dialog", BulkDialog);
