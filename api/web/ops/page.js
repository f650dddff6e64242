/** The back office: which view is open, and how it stays true. The address says all of it. */

import { read } from "../kit/client.js";
import { find } from "../kit/element.js";
import { Feed, NoSource } from "../kit/feed.js";
import "../kit/freshness.js";
import "../kit/notices.js";
import { DeadView } from "./dead.js";
import { HouseView } from "./house.js";
import { ItemView } from "./item.js";
import { JobsView } from "./jobs.js";
import { PastView } from "./past.js";
import { QueuesView } from "./queues.js";
import { WorkersView } from "./workers.js";

/** @type {Record<string, new () => import("./view.js").View>} */
const VIEWS = {
  queues: QueuesView,
  jobs: JobsView,
  dead: DeadView,
  workers: WorkersView,
  past: PastView,
  house: HouseView,
  item: ItemView,
};
const FIRST = "queues";

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
function open() {
  if (location.hash === "#view") return main.focus();
  const [name = "", ...rest] = location.hash.slice(1).split("/");
  const known = name in VIEWS ? name : FIRST;
  if (view !== null && view.dataset.name === known && view.turnTo(rest.join("/"))) {
    return feed.refresh();
  }
  view = new VIEWS[known]();
  view.dataset.name = known;
  view.argument = rest.join("/");
  view.again = () => feed.refresh();
  main.replaceChildren(view);
  document.title = `${view.heading} · Daybook`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${known}`) link.setAttribute("aria-current", "page");
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
void open();
feed.use(new NoSource());
