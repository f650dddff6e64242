/** The fields by which jobs are looked for; what is chosen stands in the address. */

import { element } from "../kit/element.js";
import { field, queryOf } from "./view.js";

export class Filters {
  form = element("form", { class: "filters", role: "search" });
  /** @type {Record<string, HTMLInputElement | HTMLSelectElement>} */
  #controls = {};
  /** What is chosen, without what is not: as it stands in the address. @type {Record<string, string>} */
  chosen = {};
  /** @type {string | undefined} */
  #shown;
  #view;

  /**
   * @param {string} view whose address it is
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
   * Applies the fields at once. An action on all matching jobs calls this first, so that it changes no job that the
   * fields leave out. The list follows when the address changes.
   */
  apply() {
    this.chosen = this.#entered;
    const query = queryOf(this.chosen);
    location.hash = query === "" ? `#${this.#view}` : `#${this.#view}/${query}`;
  }

  /** What stands in the fields, which may not be finished. */
  get #entered() {
    const all = Object.entries(this.#controls).map(([name, control]) => [name, control.value.trim()]);
    return Object.fromEntries(all.filter(([, value]) => value !== ""));
  }

  /**
   * Once for each address: a view is shown again every few seconds, and what somebody is just choosing or typing is
   * theirs until it stands there.
   * @param {string} argument as it stands in the address
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
    return said.length === 0 ? "All of them." : `Only ${said.join(", ")}.`;
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
