/** The back office: which view is open, and how it stays true. The address says all of it. */

import { read } from "../kit/client.js";
import { find } from "../kit/element.js";
import { Feed, NoSource } from "../kit/feed.js";
import "../kit/freshness.js";
import "../kit/notices.js";
import "./queues.js";

// Each is a module of its own, which defines `<ops-…>` of the same name.
const VIEWS = ["queues", "jobs", "dead", "workers", "past", "house", "item"];
const FIRST = "queues";
const AGAIN_MS = 2000;

/** @type {import("../kit/freshness.js").Freshness} */
const freshness = find("daybook-freshness");
const main = find("main");
/** @type {import("./view.js").View | null} */
let view = null;

const feed = new Feed({
  refresh: async () => {
    // Asked first: what was committed by then is in what is read afterwards.
    const { position } = await read("/health/ready");
    await view?.refresh();
    freshness.heard(position);
  },
  onHeard: () => {},
  onState: (state) => {
    freshness.state = state;
    const words = "Not connected: this is what was known last. The page catches up by itself.";
    find("daybook-notices").banner = state === "offline" ? words : null;
  },
});

/** Opens what the address says: `#jobs/status=DEAD`, `#item/<id>`. */
async function open() {
  if (location.hash === "#view") return main.focus();
  const asked = location.hash;
  const [name, ...rest] = asked.slice(1).split("/");
  const known = VIEWS.includes(name) ? name : FIRST;
  if (view !== null && view.dataset.name === known && view.turnTo(rest.join("/"))) {
    return feed.refresh();
  }
  const isFetched = await fetchView(known);
  // While it was fetched somebody may have gone elsewhere.
  if (location.hash !== asked) return;
  if (isFetched) await show(known, rest.join("/"));
  else setTimeout(open, AGAIN_MS);
}

/** @param {string} name @returns {Promise<boolean>} whether it is there */
function fetchView(name) {
  return import(`./${name}.js`).then(
    () => true,
    () => false,
  );
}

/** The first view is there before the others are asked for; these come before the service is away. */
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
