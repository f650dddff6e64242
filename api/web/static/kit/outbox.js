/**
 * `<daybook-outbox>`: writes without a response yet.
 *
 * Unanswered writes are shown and retried until the service accepts or refuses them. Each has an idempotency key, so
 * retries are safe. Session storage keeps them across reloads of the tab.
 */

import { Problem, identifier, write } from "./client.js";
import { arrange, element, find, say } from "./element.js";
import { clock } from "./time.js";

const KEPT = "daybook-outbox";
// Show writes that take longer than this.
const SHOWN_AFTER_MS = 500;
const AGAIN_MS = 2000;
const WAITING_MAX = 50;
const UNAUTHORIZED = 401;

/**
 * @typedef {object} Letter
 * @property {string} key of idempotency
 * @property {string} label of the action, as the page shows it
 * @property {"POST" | "DELETE"} method
 * @property {string} path
 * @property {object} [body]
 * @property {number} since
 */

export class Outbox extends HTMLElement {
  #list = element("ul", { "aria-label": "Waiting to send" });
  /** @type {Letter[]} */
  #letters = recalled();
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
    return this.#letters.some((letter) => letter.method === method && letter.path === path);
  }

  /** Queues a write. @param {string} label @param {Letter["method"]} method @param {string} path @param {object} [body] */
  async post(label, method, path, body) {
    if (this.#letters.length >= WAITING_MAX) throw new Error(`${WAITING_MAX} requests wait to be sent: no more are taken until Daybook answers.`);
    const letter = { key: identifier(), label, method, path, body, since: Date.now() };
    this.#letters.push(letter);
    this.#changed();
    setTimeout(() => this.#show(), SHOWN_AFTER_MS);
    void this.#sendAll();
  }

  /** Sends in order until one gets no response. */
  async #sendAll() {
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#letters.length > 0 && (await this.#send(this.#letters[0])));
    this.#isSending = false;
  }

  /** @param {Letter} letter @returns {Promise<boolean>} whether a response arrived */
  async #send(letter) {
    try {
      await write(letter.method, letter.path, letter.body, letter.key);
      this.#drop(letter);
      return true;
    } catch (error) {
      if (!(error instanceof Problem) || isForLater(error)) return false;
      this.#drop(letter);
      find("daybook-notices").tell(`${letter.label}: ${error.message}`);
      return true;
    }
  }

  /** @param {Letter} letter */
  #drop(letter) {
    this.#letters = this.#letters.filter((one) => one !== letter);
    this.#changed();
  }

  #changed() {
    remember(this.#letters);
    this.#show();
  }

  #show() {
    const late = this.#letters.filter((letter) => Date.now() - letter.since >= SHOWN_AFTER_MS);
    this.hidden = late.length === 0;
    arrange(this.#list, late, (letter) => letter.key, (letter) => this.#itemOf(letter), () => {});
  }

  /** @param {Letter} letter */
  #itemOf(letter) {
    const words = element("span");
    say(words, `${letter.label}: waiting to send since ${clock(letter.since)}`);
    const title = "Stops retrying. If an earlier attempt reached Daybook, it has taken effect.";
    const discard = element("button", { type: "button", title, "aria-label": `Discard ${letter.label}` }, "Discard");
    discard.addEventListener("click", () => this.#drop(letter));
    return element("li", {}, words, discard);
  }
}

/** Whether to retry: the service is overloaded, fails, or requires login. @param {Problem} problem */
function isForLater(problem) {
  return problem.status >= 500 || problem.status === 429 || problem.status === UNAUTHORIZED;
}

/** @returns {Letter[]} the writes queued before the page was loaded */
function recalled() {
  try {
    const letters = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(letters) ? letters : [];
  } catch {
    return [];
  }
}

/** @param {Letter[]} letters */
function remember(letters) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(letters));
  } catch {
    // Without storage, writes are kept while the page is open.
  }
}

customElements.define("daybook-outbox", Outbox);
