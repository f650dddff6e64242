/**
 * `<daybook-outbox>`: writes without a response yet.
 *
 * Unanswered writes are shown and retried until the service accepts or refuses them. Each has an idempotency key, so
 * retries are safe. Session storage keeps them across reloads of the tab.
 */

import { Problem, identifier, write } from "./client.js";
import { arrange, element, find, setText } from "./element.js";
import { clock } from "./time.js";

const KEPT = "daybook-outbox";
// Show writes that take longer than this.
const SHOWN_AFTER_MS = 500;
const AGAIN_MS = 2000;
const WAITING_MAX = 50;
const UNAUTHORIZED = 401;

/**
 * @typedef {object} QueuedWrite
 * @property {string} key of idempotency
 * @property {string} label of the action, as the page shows it
 * @property {"POST" | "DELETE"} method
 * @property {string} path
 * @property {object} [body]
 * @property {number} since
 */

export class Outbox extends HTMLElement {
  #list = element("ul", { "aria-label": "Waiting to send" });
  /** @type {QueuedWrite[]} */
  #writes = loadWrites();
  #isSending = false;

  connectedCallback() {
    this.setAttribute("role", "status");
    this.replaceChildren(this.#list);
    this.#show();
    setInterval(() => this.#sendAll(), AGAIN_MS);
    addEventListener("online", () => this.#sendAll());
    void this.#sendAll();
  }

  /** Whether the same write is queued already. @param {string} method @param {string} path */
  has(method, path) {
    return this.#writes.some((queued) => queued.method === method && queued.path === path);
  }

  /** Queues a write. @param {string} label @param {QueuedWrite["method"]} method @param {string} path @param {object} [body] */
  async post(label, method, path, body) {
    if (this.#writes.length >= WAITING_MAX) throw new Error(`${WAITING_MAX} requests wait to be sent: no more are accepted until Daybook responds.`);
    const queued = { key: identifier(), label, method, path, body, since: Date.now() };
    this.#writes.push(queued);
    this.#changed();
    setTimeout(() => this.#show(), SHOWN_AFTER_MS);
    void this.#sendAll();
  }

  /** Sends in order until one gets no response. */
  async #sendAll() {
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#writes.length > 0 && (await this.#send(this.#writes[0])));
    this.#isSending = false;
  }

  /** @param {QueuedWrite} queued @returns {Promise<boolean>} whether a response arrived */
  async #send(queued) {
    try {
      await write(queued.method, queued.path, queued.body, queued.key);
      this.#drop(queued);
      return true;
    } catch (error) {
      if (!(error instanceof Problem) || isForLater(error)) return false;
      this.#drop(queued);
      find("daybook-notices").show(`${queued.label}: ${error.message}`);
      return true;
    }
  }

  /** @param {QueuedWrite} queued */
  #drop(queued) {
    this.#writes = this.#writes.filter((one) => one !== queued);
    this.#changed();
  }

  #changed() {
    saveWrites(this.#writes);
    this.#show();
  }

  #show() {
    const late = this.#writes.filter((queued) => Date.now() - queued.since >= SHOWN_AFTER_MS);
    this.hidden = late.length === 0;
    arrange(this.#list, late, (queued) => queued.key, (queued) => this.#itemOf(queued), () => {});
  }

  /** @param {QueuedWrite} queued */
  #itemOf(queued) {
    const words = element("span");
    setText(words, `${queued.label}: waiting to send since ${clock(queued.since)}`);
    const title = "Stops retrying. If an earlier attempt reached Daybook, it has taken effect.";
    const discard = element("button", { type: "button", title, "aria-label": `Discard ${queued.label}` }, "Discard");
    discard.addEventListener("click", () => this.#drop(queued));
    return element("li", {}, words, discard);
  }
}

/** Whether to retry: the service is overloaded, fails, or requires login. @param {Problem} problem */
function isForLater(problem) {
  return problem.status >= 500 || problem.status === 429 || problem.status === UNAUTHORIZED;
}

/** @returns {QueuedWrite[]} the writes queued before the page was loaded */
function loadWrites() {
  try {
    const writes = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(writes) ? writes : [];
  } catch {
    return [];
  }
}

/** @param {QueuedWrite[]} writes */
function saveWrites(writes) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(writes));
  } catch {
    // Without storage, writes are kept while the page is open.
  }
}

customElements.define("daybook-outbox", Outbox);
