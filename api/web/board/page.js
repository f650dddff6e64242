/** The board: draws what the kitchen says, and sends what its buttons are pressed for. */

import { write } from "../kit/client.js";
import { find, say } from "../kit/element.js";
import "../kit/freshness.js";
import "../kit/notices.js";
import { clock, count } from "../kit/time.js";
import { BotStrip } from "./strip.js";
import { Kitchen } from "./kitchen.js";
import { Shelf } from "./shelf.js";

const BARS_MS = 100;

/** @type {import("../kit/freshness.js").Freshness} */
const freshness = find("daybook-freshness");
/** @type {import("../kit/notices.js").Notices} */
const notices = find("daybook-notices");
const strip = /** @type {BotStrip} */ (find("bot-strip"));

const kitchen = new Kitchen({
  orders: (ids) => shelf.touch(ids),
  bots: () => {
    strip.show(kitchen);
    find("#remove-bot").disabled = kitchen.bots.list.length === 0;
  },
  heard: (position, ageMs) => {
    freshness.heard(position, ageMs);
    shelf.touch([]);
    tellTheDead();
  },
  state: (state) => {
    freshness.state = state;
    notices.banner = state === "offline" ? offlineWords() : null;
  },
  leader: (isLeader) => say(find("#role"), isLeader ? "This tab leads" : "Follows another tab"),
});
const shelf = new Shelf(kitchen, (text) => say(find("#told"), text));
// For whoever looks into the page: its stores, and nothing that does anything.
Object.assign(window, { daybook: { orders: kitchen.orders, bots: kitchen.bots } });

function offlineWords() {
  const since = kitchen.savedAt === null ? Date.now() : kitchen.savedAt;
  return `Not connected: this is the board as it was at ${clock(since)}. It catches up by itself.`;
}

function tellTheDead() {
  const dead = kitchen.orders.deadOrders.length;
  find("#dead").hidden = dead === 0;
  say(find("#dead"), dead === 1 ? "1 order was given up" : `${count(dead)} orders were given up`);
}

/** @param {string} selector @param {() => Promise<unknown>} work */
function onPress(selector, work) {
  const button = find(selector);
  button.addEventListener("click", () => notices.attempt(button, work));
}

async function removeNewest() {
  const newest = kitchen.bots.list.at(-1);
  if (newest !== undefined) await write("DELETE", `/api/bots/${newest.id}`);
}

onPress("#new-normal", () => write("POST", "/api/orders", { type: "NORMAL" }));
onPress("#new-vip", () => write("POST", "/api/orders", { type: "VIP" }));
// These help themselves to orders, so the kitchen goes on when no board is open.
onPress("#add-bot", () => write("POST", "/api/bots", { autoClaim: true }));
onPress("#remove-bot", removeNewest);

kitchen.start();
setInterval(() => strip.tick(kitchen), BARS_MS);
