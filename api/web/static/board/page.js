/** The board: draws what the kitchen says, and sends what its buttons are pressed for. */

import { find, say } from "../kit/element.js";
import "../kit/freshness.js";
import "../kit/notices.js";
import "../kit/outbox.js";
import { clock, count } from "../kit/time.js";
import { BotStrip } from "./strip.js";
import { Kitchen } from "./kitchen.js";
import { Shelf } from "./shelf.js";

const BARS_MS = 100;

/** @type {import("../kit/freshness.js").Freshness} */
const freshness = find("daybook-freshness");
/** @type {import("../kit/notices.js").Notices} */
const notices = find("daybook-notices");
/** @type {import("../kit/outbox.js").Outbox} */
const outbox = find("daybook-outbox");
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
  const orders = kitchen.orders.deadOrders.length;
  const bots = kitchen.bots.list.filter((bot) => bot.status === "DEAD").length;
  const words = [
    ...(orders === 0 ? [] : [orders === 1 ? "1 order was given up" : `${count(orders)} orders were given up`]),
    ...(bots === 0 ? [] : [bots === 1 ? "1 bot is out of service" : `${count(bots)} bots are out of service`]),
  ];
  find("#dead").hidden = words.length === 0;
  say(find("#dead"), words.join(" · "));
}

/** @param {string} selector @param {() => Promise<unknown>} work */
function onPress(selector, work) {
  const button = find(selector);
  button.addEventListener("click", () => notices.attempt(button, work));
}

/** The newest one whose end does not wait to be sent already. */
async function removeNewest() {
  const left = kitchen.bots.list.filter((bot) => !outbox.has("DELETE", `/api/bots/${bot.id}`));
  const newest = left.at(-1);
  if (newest !== undefined) await outbox.post("− Bot", "DELETE", `/api/bots/${newest.id}`);
}

onPress("#new-normal", () => outbox.post("New normal order", "POST", "/api/orders", { type: "NORMAL" }));
onPress("#new-vip", () => outbox.post("New VIP order", "POST", "/api/orders", { type: "VIP" }));
// These help themselves to orders, so the kitchen goes on when no board is open.
onPress("#add-bot", () => outbox.post("+ Bot", "POST", "/api/bots", { autoClaim: true }));
onPress("#remove-bot", removeNewest);

kitchen.start();
setInterval(() => strip.tick(kitchen), BARS_MS);
