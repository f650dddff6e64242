/** Queues: depth, age of the oldest job, and throughput. */

import { read, write } from "../kit/client.js";
import { arrange, element, find, setText } from "../kit/element.js";
import { count, duration } from "../kit/time.js";
import { chart } from "./chart.js";
import { Rates } from "./rates.js";
import { View, heading, queryOf } from "./view.js";

/**
 * @typedef {object} Queue
 * @property {string} name
 * @property {boolean} paused
 * @property {number} pending
 * @property {number} scheduled
 * @property {number} behind others in their lanes
 * @property {number} processing
 * @property {number} dead
 * @property {string[]} atLeast
 * @property {string | null} oldestPendingAt
 */

const FIGURES = { pending: "pending", behind: "blocked in lane", scheduled: "scheduled", processing: "processing", dead: "dead" };
const STATUSES = { pending: "PENDING", behind: "PENDING", scheduled: "PENDING", processing: "PROCESSING", dead: "DEAD" };

const SLICES_A_MINUTE = 12;

// Survives a change of views, so that charts keep their history.
const rates = new Rates();

export class QueuesView extends View {
  heading = "Queues";
  #list = element("ul", { class: "queues" });
  #empty = element("p", { class: "empty" }, "No queues yet. The first job creates one.");

  build() {
    const legend = element(
      "p",
      { class: "legend" },
      element("span", { class: "key depth" }, "pending"),
      element("span", { class: "key created" }, "created / s"),
      element("span", { class: "key completed" }, "completed / s"),
      "over the last 5 minutes",
    );
    return [heading("Queues", legend), this.#empty, this.#list];
  }

  async show() {
    const [{ queues }] = await Promise.all([read("/api/queues"), rates.update()]);
    for (const queue of queues) rates.sample(queue.name, queue.pending);
    this.#empty.hidden = queues.length > 0;
    arrange(this.#list, /** @type {Queue[]} */ (queues), (queue) => queue.name, this.#card, describe);
  }

  /** @param {Queue} queue */
  #card = (queue) => {
    const pause = /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "pause" }));
    pause.addEventListener("click", () =>
      find("daybook-notices").attempt(pause, async () => {
        const paused = pause.dataset.paused !== "true";
        await write("PUT", `/api/queues/${queue.name}`, { paused });
        await this.again();
      }),
    );
    const figures = Object.entries(FIGURES).map(([name, text]) => {
      const status = STATUSES[/** @type {keyof typeof STATUSES} */ (name)];
      const href = `#jobs/${queryOf({ status, queue: queue.name })}`;
      const figure = element("a", { class: "figure", href, "data-figure": name }, "0");
      return element("div", {}, element("dt", {}, text), element("dd", {}, figure));
    });
    const age = element("div", {}, element("dt", {}, "oldest pending"), element("dd", { class: "age" }, "–"));
    return element(
      "li",
      { class: "card queue" },
      element("header", {}, element("h3", {}, queue.name), pause),
      element("dl", { class: "figures" }, ...figures, age),
      element("div", { class: "charts" }),
    );
  };
}

/** @param {Element} card @param {Queue} queue */
function describe(card, queue) {
  for (const name of Object.keys(FIGURES)) {
    const amount = queue[/** @type {keyof typeof FIGURES} */ (name)];
    const more = queue.atLeast.includes(name) ? "≥ " : "";
    setText(find(`[data-figure="${name}"]`, card), `${more}${count(amount)}`);
  }
  // Hidden for queues without lanes.
  find('[data-figure="behind"]', card).closest("div").hidden = queue.behind === 0;
  const since = queue.oldestPendingAt;
  setText(find(".age", card), since === null ? "–" : duration(rates.clock.now() - Date.parse(since)));
  const pause = find(".pause", card);
  pause.dataset.paused = String(queue.paused);
  setText(pause, queue.paused ? "Resume" : "Pause");
  pause.setAttribute("aria-label", `${queue.paused ? "Resume" : "Pause"} ${queue.name}`);
  card.classList.toggle("paused", queue.paused);
  find(".charts", card).replaceChildren(...chartsOf(queue));
}

/** @param {Queue} queue */
function chartsOf(queue) {
  const depths = rates.depths(queue.name);
  const created = rates.perSecond(queue.name, "created");
  const completed = rates.perSecond(queue.name, "completed");
  const [coming, going] = [ofLastMinute(created), ofLastMinute(completed)];
  const pace = `in the last minute ${coming} created and ${going} completed per second`;
  return [
    figureOf(`${count(queue.pending)} pending`, chart(`${queue.name}: ${queue.pending} pending`, [{ name: "depth", values: depths }])),
    figureOf(
      `${coming} in · ${going} out /s in the last minute`,
      chart(`${queue.name}: ${pace}`, [
        { name: "created", values: created },
        { name: "completed", values: completed },
      ]),
    ),
  ];
}

/** @param {string} text @param {SVGElement} drawn */
function figureOf(text, drawn) {
  return element("figure", {}, drawn, element("figcaption", {}, text));
}

/** The average of complete slices: the current one is too short. @param {(number | null)[]} values */
function ofLastMinute(values) {
  const known = values.slice(-SLICES_A_MINUTE).filter((value) => value !== null);
  return (known.reduce((sum, value) => sum + value, 0) / Math.max(1, known.length)).toFixed(1);
}

customElements.define("ops-queues", QueuesView);
