/** One order, bot, job or ticket: explanation, next step and timeline. */

import { Problem, read, write } from "../kit/client.js";
import { arrange, element, find, setText } from "../kit/element.js";
import { clock } from "../kit/time.js";
import { ReasonDialog } from "./reason_dialog.js";
import { readTimeline, showTimeline } from "./timeline.js";
import { View, badge, fill, heading, pretty } from "./view.js";

const EXPLAINED = ["order", "bot", "job", "ticket"];
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const ACTIONS = {
  "job DEAD": ["retry", "cancel"],
  "job CANCELLED": ["retry"],
  "job PENDING": ["cancel"],
  "job PROCESSING": ["cancel"],
  "order DEAD": ["requeue"],
  "bot DEAD": ["restore"],
};
// Actions that require a reason.
const REASONED = ["bot restore"];

export class ItemView extends View {
  heading = "Explain";
  #title = element("h2");
  #status = element("span", { class: "badged" });
  #reasons = element("ul", { class: "reasons" });
  #next = element("p", { class: "next" });
  #why = element("section", { class: "card" }, element("h3", {}, "Explanation"), this.#reasons, this.#next);
  #content = element("section", { class: "card", hidden: true }, element("h3", {}, "Payload and result"));
  #actions = element("div", { class: "actions" });
  #ask = new ReasonDialog();
  #timeline = element("ol", { class: "timeline" });
  #cut = element("p", { class: "hint", hidden: true }, "First events only: `daybook history` lists all.");

  build() {
    const header = element("header", { class: "section" }, this.#title, this.#status, this.#actions);
    return [header, this.#why, this.#content, heading("Timeline"), this.#timeline, this.#cut, this.#ask];
  }

  async show() {
    const id = this.argument;
    if (!UUID.test(id)) throw new Problem(400, { detail: "Invalid id: an id looks like 01890a5d-ac96-774b-bcce-b302099a8057." });
    const { events, isCut } = await readTimeline(id);
    if (events.length === 0) throw new Problem(404, { detail: `No order, bot, job or ticket has the id ${id}.` });
    const kind = events[0].topic.split(".", 1)[0];
    setText(this.#title, `${kind} ${id}`);
    document.title = `${kind} …${id.slice(-8)} · Daybook`;
    showTimeline(this.#timeline, events);
    this.#cut.hidden = !isCut;
    this.#why.hidden = !EXPLAINED.includes(kind);
    if (EXPLAINED.includes(kind)) this.#explain(kind, await read(`/api/${kind}s/${id}/explain`));
    if (kind === "job") this.#showJob((await read(`/api/jobs/${id}`)).job);
  }

  /** @param {string} kind @param {any} explanation */
  #explain(kind, explanation) {
    fill(this.#status, badge(explanation.status));
    const reasons = /** @type {{code: string, detail: string}[]} */ (explanation.reasons);
    arrange(this.#reasons, reasons, (reason) => reason.code, () => element("li"), (item, reason) =>
      fill(item, element("span", {}, reason.detail), " ", element("code", {}, reason.code)),
    );
    const at = explanation.next.at === null ? "" : ` (${clock(explanation.next.at)})`;
    setText(this.#next, `Next: ${explanation.next.what}${at}`);
    const actions = ACTIONS[/** @type {keyof typeof ACTIONS} */ (`${kind} ${explanation.status}`)] ?? [];
    arrange(this.#actions, actions, (name) => name, (name) => this.#button(kind, name), () => {});
  }

  /** @param {import("./jobs.js").Job} job */
  #showJob(job) {
    this.#content.hidden = false;
    const shown = { payload: job.payload, ...(job.result === null ? {} : { result: job.result }) };
    const text = JSON.stringify(shown, null, 2);
    if (this.#content.dataset.text === text) return;
    this.#content.dataset.text = text;
    this.#content.replaceChildren(this.#content.children[0], pretty(shown));
  }

  /** @param {string} kind @param {string} name */
  #button(kind, name) {
    const words = name[0].toUpperCase() + name.slice(1);
    const button = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, words));
    button.addEventListener("click", () =>
      find("daybook-notices").attempt(button, async () => {
        const isReasoned = REASONED.includes(`${kind} ${name}`);
        const reason = isReasoned ? await this.#ask.ask(`${words} ${kind}`, "", words) : undefined;
        if (reason === null) return;
        await write("POST", `/api/${kind}s/${this.argument}/${name}`, reason === undefined ? undefined : { reason });
        await this.again();
      }),
    );
    return button;
  }
}

customElements.define("ops-item", ItemView);
