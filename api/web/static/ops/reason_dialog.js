/** `<reason-dialog>`: asks for the reason of an action that requires one. */

import { element, setText } from "../kit/element.js";
import { field } from "./view.js";

export class ReasonDialog extends HTMLElement {
  #dialog = /** @type {HTMLDialogElement} */ (element("dialog", { "aria-labelledby": "reason-title" }));
  #title = element("h2", { id: "reason-title" });
  #hint = element("p", { class: "hint" });
  #reason = /** @type {HTMLInputElement} */ (element("input", { maxlength: 500, autocomplete: "off", required: true }));
  #go = element("button", { class: "primary" });
  #close = element("button", { type: "button" }, "Close");
  /** @type {(reason: string | null) => void} */
  #answer = () => {};

  connectedCallback() {
    if (this.#dialog.isConnected) return;
    const actions = element("div", { class: "actions" }, this.#go, this.#close);
    const form = element("form", {}, this.#title, this.#hint, field("Reason (recorded)", this.#reason), actions);
    this.#dialog.append(form);
    this.append(this.#dialog);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#end(this.#reason.value.trim() || null);
    });
    this.#close.addEventListener("click", () => this.#end(null));
    this.#dialog.addEventListener("cancel", () => this.#end(null));
  }

  /** @param {string} title @param {string} hint @param {string} verb @returns {Promise<string | null>} null if cancelled */
  ask(title, hint, verb) {
    setText(this.#title, title);
    setText(this.#hint, hint);
    setText(this.#go, verb);
    this.#reason.value = "";
    this.#dialog.showModal();
    this.#reason.focus();
    return new Promise((answer) => (this.#answer = answer));
  }

  /** @param {string | null} reason */
  #end(reason) {
    this.#dialog.close();
    this.#answer(reason);
  }
}

customElements.define("reason-dialog", ReasonDialog);
