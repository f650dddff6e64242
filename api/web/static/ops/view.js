/** Base class and helpers of the operations views. */

import { Problem } from "../kit/client.js";
import { element, setText } from "../kit/element.js";

export class View extends HTMLElement {
  /** The page title while the view is open. */
  heading = "Operations";
  /** The part of the URL after the name of the view. */
  argument = "";
  /** Refreshes at once. @type {() => Promise<void>} */
  again = async () => {};
  #state = element("p", { class: "empty", role: "status" }, "Loading …");
  #body = element("div", { class: "view", hidden: true });
  #isBuilt = false;

  connectedCallback() {
    if (this.#isBuilt) return;
    this.#isBuilt = true;
    this.#body.append(...this.build());
    this.append(this.#state, this.#body);
  }

  /** @returns {Node[]} the static content */
  build() {
    return [];
  }

  /** Reads and draws. @returns {Promise<void>} */
  async show() {}

  /** Whether it can show another argument without being recreated. @param {string} argument */
  turnTo(argument) {
    return argument === this.argument;
  }

  /** A refusal replaces the view; without a response the last content stays. */
  async refresh() {
    try {
      await this.show();
      this.#state.hidden = true;
      this.#body.hidden = false;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status >= 500) throw error;
      setText(this.#state, error.message);
      this.#state.hidden = false;
      this.#body.hidden = true;
    }
  }
}

/** A heading with its controls. @param {string} text @param {...(Node | string)} beside */
export function heading(text, ...beside) {
  return element("header", { class: "section" }, element("h2", {}, text), ...beside);
}

/**
 * A table that scrolls on narrow screens, by keyboard too.
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

/** Replaces the content of a cell if its text differs. @param {Element} cell @param {...(Node | string)} children */
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

/** A link to an item, labelled with the end of its id: ids created together share the beginning. @param {string} id @param {string} [text] */
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

/** @param {Record<string, string>} given @returns {string} as a query string without empty values */
export function queryOf(given) {
  const kept = Object.entries(given).filter(([, value]) => value !== "");
  return new URLSearchParams(kept).toString();
}
