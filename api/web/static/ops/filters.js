/** Filter fields for jobs; the URL fragment stores the applied filter. */

import { element } from "../kit/element.js";
import { field, queryOf } from "./view.js";

export class Filters {
  form = element("form", { class: "filters", role: "search" });
  /** @type {Record<string, HTMLInputElement | HTMLSelectElement>} */
  #controls = {};
  /** The applied filter without empty values, as in the URL. @type {Record<string, string>} */
  chosen = {};
  /** @type {string | undefined} */
  #shown;
  #view;

  /**
   * @param {string} view the name of the view in the URL
   * @param {Record<string, {label: string, choices?: Record<string, string>}>} fields by their names
   */
  constructor(view, fields) {
    this.#view = view;
    for (const [name, { label, choices }] of Object.entries(fields)) {
      const control = choices === undefined ? text() : select(choices);
      this.#controls[name] = control;
      this.form.append(field(label, control));
    }
    this.form.addEventListener("change", () => this.apply());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.apply();
    });
  }

  /**
   * Applies the fields at once. Bulk actions call this first, so that they change only jobs that match the fields.
   * The list follows when the URL changes.
   */
  apply() {
    this.chosen = this.#entered;
    const query = queryOf(this.chosen);
    location.hash = query === "" ? `#${this.#view}` : `#${this.#view}/${query}`;
  }

  /** The current values of the fields, applied or not. */
  get #entered() {
    const all = Object.entries(this.#controls).map(([name, control]) => [name, control.value.trim()]);
    return Object.fromEntries(all.filter(([, value]) => value !== ""));
  }

  /**
   * Sets the fields, once per URL: views refresh every few seconds and must not overwrite input in progress.
   * @param {string} argument the filter in the URL
   */
  read(argument) {
    if (argument === this.#shown) return;
    this.#shown = argument;
    const given = new URLSearchParams(argument);
    for (const [name, control] of Object.entries(this.#controls)) {
      const value = given.get(name) ?? "";
      if (control.value.trim() !== value) control.value = value;
    }
    this.chosen = this.#entered;
  }

  get words() {
    const said = Object.entries(this.chosen).map(([name, value]) => `${name} ${value}`);
    return said.length === 0 ? "All jobs." : `Only ${said.join(", ")}.`;
  }
}

function text() {
  return /** @type {HTMLInputElement} */ (element("input", { type: "search", autocomplete: "off", spellcheck: "false" }));
}

/** @param {Record<string, string>} choices */
function select(choices) {
  const options = Object.entries(choices).map(([value, name]) => element("option", { value }, name));
  return /** @type {HTMLSelectElement} */ (element("select", {}, ...options));
}
