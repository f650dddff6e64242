/** `<daybook-notices>`: one persistent banner and transient notices. */

import { element } from "./element.js";

const PASSING_MS = 8000;

export class Notices extends HTMLElement {
  #banner = element("p", { class: "banner", role: "status", hidden: true });
  #passing = element("div", { class: "passing", role: "alert" });

  connectedCallback() {
    this.replaceChildren(this.#banner, this.#passing);
  }

  /** Stays until set to null. @param {string | null} text */
  set banner(text) {
    this.#banner.hidden = text === null;
    this.#banner.textContent = text ?? "";
  }

  /** @param {unknown} error */
  show(error) {
    const text = error instanceof Error ? error.message : String(error);
    const word = element("p", { class: "word" }, text);
    const close = element("button", { type: "button", "aria-label": "Dismiss" }, "×");
    close.addEventListener("click", () => word.remove());
    word.append(close);
    this.#passing.append(word);
    setTimeout(() => word.remove(), PASSING_MS);
  }

  /**
   * Runs an action with its button disabled; shows a notice if it fails.
   *
   * @param {HTMLButtonElement} button
   * @param {() => Promise<unknown>} work
   */
  async attempt(button, work) {
    button.setAttribute("aria-busy", "true");
    try {
      await work();
    } catch (error) {
      this.show(error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  }
}

customElements.define("daybook-notices", Notices);
