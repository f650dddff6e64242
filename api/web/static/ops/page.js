/** The operations page: opens the view named in the URL and keeps it up to date. */

import { read } from "../kit/client.js";
import { find } from "../kit/element.js";
import { Feed, NoSource } from "../kit/feed.js";
import "../kit/freshness.js";
import "../kit/notices.js";
import "./queues.js";

// Each module defines the element `<ops-…>` of the same name.
const VIEWS = ["queues", "jobs", "dead", "workers", "past", "maintenance", "item"];
const FIRST = "queues";
const AGAIN_MS = 2000;

/** @type {import("../kit/freshness.js").Freshness} */
const freshness = find("daybook-freshness");
const main = find("main");
/** @type {import("./view.js").View | null} */
let view = null;
let failures = 0;

const feed = new Feed({
  refresh: async () => {
    // Read first: the view then includes everything up to this position.
    const { position } = await read("/health/ready");
    await view?.refresh();
    freshness.update(position);
  },
  onChanges: () => {},
  onState: (state) => {
    freshness.state = state;
    const words = "Disconnected: showing the last known data. Reconnecting …";
    find("daybook-notices").banner = state === "offline" ? words : null;
  },
});

/** Opens the view named in the URL: `#jobs/status=DEAD`, `#item/<id>`. */
async function open() {
  if (location.hash === "#view") return main.focus();
  const hash = location.hash;
  const [name, ...rest] = hash.slice(1).split("/");
  const known = VIEWS.includes(name) ? name : FIRST;
  if (view !== null && view.dataset.name === known && view.turnTo(rest.join("/"))) {
    return feed.refresh();
  }
  const isFetched = await fetchView(known);
  // The user may have navigated meanwhile.
  if (location.hash !== hash) return;
  if (isFetched) await show(known, rest.join("/"));
  else setTimeout(open, AGAIN_MS);
}

/**
 * Browsers remember a failed import by its address, so that each retry needs another one.
 *
 * @param {string} name
 * @returns {Promise<boolean>} whether it was loaded
 */
async function fetchView(name) {
  if (customElements.get(`ops-${name}`)) return true;
  return import(`./${name}.js?${failures}`).then(
    () => true,
    () => {
      failures += 1;
      return false;
    },
  );
}

/** Loads the first view, then all others, so that they work while the service is unreachable. */
async function begin() {
  await open();
  await Promise.all(VIEWS.map(fetchView));
}

/** @param {string} name @param {string} argument */
function show(name, argument) {
  view = /** @type {import("./view.js").View} */ (document.createElement(`ops-${name}`));
  view.dataset.name = name;
  view.argument = argument;
  view.again = () => feed.refresh();
  main.replaceChildren(view);
  document.title = `${view.heading} · Daybook`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  return feed.refresh();
}

find("#find").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  const wanted = find("#wanted").value.trim().toLowerCase();
  if (wanted !== "") location.hash = `#item/${wanted}`;
});
addEventListener("hashchange", open);
void begin();
feed.use(new NoSource());
