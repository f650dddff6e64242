/** What all views of the back office share: they are read, and say so when they are not. */

import { Problem } from "../kit/client.js";
import { element, say } from "../kit/element.js";

export class View extends HTMLElement {
  /** The title of the page while it is open. */
  heading = "Back office";
  /** What stands behind its name in the address. */
  argument = "";
  /** Reads it anew, at once. @type {() => Promise<void>} */
  again = async () => {};
  #state = element("p", { class: "empty", role: "status" }, "Reading …");
  #body = element("div", { class: "view", hidden: true });
  #isBuilt = false;

  connectedCallback() {
    if (this.#isBuilt) return;
    this.#isBuilt = true;
    this.#body.append(...this.build());
    this.append(this.#state, this.#body);
  }

  /** @returns {Node[]} what stays while it is open */
  build() {
    return [];
  }

  /** Reads and draws. @returns {Promise<void>} */
  async show() {}

  /** Whether it can show another argument without being made anew. @param {string} argument */
  turnTo(argument) {
    return argument === this.argument;
  }

  /** What the service refuses stands in the place of the view; without an answer, the last one does. */
  async refresh() {
    try {
      await this.show();
      this.#state.hidden = true;
      this.#body.hidden = false;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status >= 500) throw error;
      say(this.#state, error.message);
      this.#state.hidden = false;
      this.#body.hidden = true;
    }
  }
}

/** A heading with what belongs to it. @param {string} text @param {...(Node | string)} beside */
export function heading(text, ...beside) {
  return element("header", { class: "section" }, element("h2", {}, text), ...beside);
}

/**
 * A table that scrolls by itself where the screen is narrow, also with the keyboard.
 *
 * @param {string} caption
 * @param {string[]} columns
 * @returns {{box: HTMLElement, body: HTMLElement}}
 */
export function table(caption, columns) {
  const body = element("tbody");
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const made = element(
    "table",
    {},
    element("caption", { class: "unseen" }, caption),
    element("thead", {}, head),
    body,
  );
  return { box: element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made), body };
}

/** Replaces what a cell shows, unless it says the same. @param {Element} cell @param {...(Node | string)} children */
export function fill(cell, ...children) {
  const text = children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  if (cell.textContent !== text) cell.replaceChildren(...children);
}

const BADGES = {
  PROCESSING: "busy",
  CALLED: "busy",
  running: "busy",
  COMPLETED: "done",
  COMPLETE: "done",
  SEATED: "done",
  done: "done",
  good: "done",
  DEAD: "dead",
  failed: "dead",
  bad: "dead",
  VIP: "vip",
  notice: "vip",
  stopped: "vip",
  overdue: "dead",
};

/** @param {string} status */
export function badge(status) {
  const kind = BADGES[/** @type {keyof typeof BADGES} */ (status)] ?? "";
  return element("span", { class: `badge ${kind}` }, status);
}

/** The way to an item, by the end of its id: ids that were made together begin alike. @param {string} id @param {string} [text] */
export function itemLink(id, text = `…${id.slice(-8)}`) {
  return element("a", { class: "id", href: `#item/${id}`, title: id }, text);
}

/** @param {unknown} value */
export function pretty(value) {
  return element("pre", { tabindex: 0 }, JSON.stringify(value, null, 2));
}

/**
 * @param {string} label
 * @param {Element} control
 */
export function field(label, control) {
  return element("label", {}, label, control);
}

/** @param {Record<string, string>} given @returns {string} as a query; what is empty is left out */
export function queryOf(given) {
  const kept = Object.entries(given).filter(([, value]) => value !== "");
  return new URLSearchParams(kept).toString();
}
