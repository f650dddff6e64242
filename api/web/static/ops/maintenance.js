/** Maintenance: verify and rebuild tables from the log, and run the checks of `daybook doctor`. */

import { read, write } from "../kit/client.js";
import { arrange, element, find, setText } from "../kit/element.js";
import { clock, count } from "../kit/time.js";
import { View, badge, fill, heading, table } from "./view.js";

const SOON_MS = 500;

/** @typedef {{name: string, rowsCount: number, differencesCount: number, differences: string[]}} Table */
/** @typedef {{what: string, health: string, sentence: string, nextStep: string}} Finding */

export class MaintenanceView extends View {
  heading = "Maintenance";
  #names = element("fieldset", {}, element("legend", {}, "Tables (default: all)"));
  #verify = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "primary" }, "Verify"));
  #rebuild = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, "Rebuild"));
  #stop = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "danger", hidden: true }, "Stop"));
  #progress = /** @type {HTMLProgressElement} */ (element("progress", { hidden: true, "aria-label": "Progress of the rebuild" }));
  #message = element("p", { class: "message", role: "status" }, "Verify compares tables with the event log and changes nothing. Rebuild recreates them from the log while the service runs.");
  #tables = table("Results", ["Table", "Rows in log", "Differences", "Examples"]);
  #examine = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "primary" }, "Run checks"));
  #examined = element("p", { class: "hint", role: "status" }, "No checks run yet.");
  #findings = element("ul", { class: "findings" });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #soon;

  build() {
    const notices = find("daybook-notices");
    const press = (/** @type {HTMLButtonElement} */ button, /** @type {string} */ path, /** @type {() => object | undefined} */ body) =>
      button.addEventListener("click", () =>
        notices.attempt(button, async () => {
          await write("POST", path, body());
          await this.again();
        }),
      );
    press(this.#verify, "/api/rebuilds", () => ({ names: this.#chosen, verifyOnly: true }));
    press(this.#rebuild, "/api/rebuilds", () => ({ names: this.#chosen }));
    press(this.#stop, "/api/rebuilds/stop", () => undefined);
    press(this.#examine, "/api/doctor", () => undefined);
    return [
      heading("Rebuild from the log", element("div", { class: "actions" }, this.#verify, this.#rebuild, this.#stop)),
      this.#names,
      this.#message,
      this.#progress,
      this.#tables.box,
      heading("Doctor", element("div", { class: "actions" }, this.#examine)),
      this.#examined,
      this.#findings,
    ];
  }

  disconnectedCallback() {
    clearTimeout(this.#soon);
  }

  async show() {
    const [rebuilds, { examination }] = await Promise.all([read("/api/rebuilds"), read("/api/doctor")]);
    this.#offer(rebuilds.names);
    this.#showRebuild(rebuilds.rebuild);
    this.#showExamination(examination);
    clearTimeout(this.#soon);
    const isBusy = [rebuilds.rebuild, examination].some((one) => one?.state === "running");
    if (isBusy && this.isConnected) this.#soon = setTimeout(() => this.again(), SOON_MS);
  }

  get #chosen() {
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (this.#names.querySelectorAll("input:checked"));
    return Array.from(boxes, (box) => box.value);
  }

  /** @param {string[]} names */
  #offer(names) {
    if (this.#names.querySelector("input") !== null) return;
    for (const name of names) {
      this.#names.append(element("label", { class: "check" }, element("input", { type: "checkbox", value: name }), name));
    }
  }

  /** @param {any} rebuild */
  #showRebuild(rebuild) {
    const isRunning = rebuild?.state === "running";
    this.#verify.disabled = this.#rebuild.disabled = isRunning;
    this.#stop.hidden = this.#progress.hidden = !isRunning;
    this.#tables.box.hidden = rebuild === null || rebuild.tables.length === 0;
    if (rebuild === null) return;
    if (rebuild.goal > 0) {
      this.#progress.max = rebuild.goal;
      this.#progress.value = rebuild.position;
    } else {
      this.#progress.removeAttribute("value");
    }
    setText(this.#message, progressText(rebuild));
    arrange(this.#tables.body, /** @type {Table[]} */ (rebuild.tables), (one) => one.name, rowOf, describe);
  }

  /** @param {any} examination */
  #showExamination(examination) {
    const isRunning = examination?.state === "running";
    this.#examine.disabled = isRunning;
    if (examination === null) return;
    const at = clock(examination.finishedAt ?? examination.startedAt);
    setText(this.#examined, isRunning ? "Checks running …" : (examination.trouble ?? `Checked at ${at}.`));
    arrange(this.#findings, /** @type {Finding[]} */ (examination.findings), (one) => one.what, () => element("li"), showFinding);
  }
}

/** @param {any} rebuild */
function progressText(rebuild) {
  const what = rebuild.verifyOnly ? "Verifying" : "Rebuilding";
  if (rebuild.state === "running") {
    const where = rebuild.goal > 0 ? `, position ${count(rebuild.position)} of ${count(rebuild.goal)}` : "";
    return `${what}: ${rebuild.step}${where}`;
  }
  const at = clock(rebuild.finishedAt ?? rebuild.startedAt);
  if (rebuild.state === "stopped") return `Stopped at ${at}: tables unchanged. The next run resumes from there.`;
  if (rebuild.state === "failed") return rebuild.trouble;
  const wrong = rebuild.tables.filter((/** @type {Table} */ one) => one.differencesCount > 0).length;
  const found = wrong === 0 ? "All tables match the log." : `${count(wrong)} ${wrong === 1 ? "table" : "tables"} differed from the log${rebuild.verifyOnly ? ": rebuild to repair" : " and repaired"}.`;
  return `${rebuild.verifyOnly ? "Verified" : "Rebuilt"} at ${at}. ${found}`;
}

function rowOf() {
  return element("tr", {}, element("th", { scope: "row" }), element("td"), element("td"), element("td"));
}

/** @param {Element} row @param {Table} one */
function describe(row, one) {
  const [name, rows, different, where] = row.children;
  fill(name, one.name);
  fill(rows, count(one.rowsCount));
  fill(different, one.differencesCount === 0 ? badge("none") : element("span", { class: "badge dead" }, count(one.differencesCount)));
  fill(where, ...one.differences.slice(0, 5).map((text) => element("div", { class: "cut", title: text }, text)));
}

/** @param {Element} item @param {Finding} finding */
function showFinding(item, finding) {
  item.setAttribute("class", `finding ${finding.health}`);
  const next = finding.nextStep === "" ? [] : [element("p", { class: "next" }, `→ ${finding.nextStep}`)];
  fill(item, badge(finding.health), element("strong", {}, finding.what), element("p", {}, finding.sentence), ...next);
}

customElements.define("ops-maintenance", MaintenanceView);
