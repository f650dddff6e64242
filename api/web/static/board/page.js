/** The board: draws orders and bots, and sends the commands of its buttons. */

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
  leader: (isLeader) => say(find("#role"), isLeader ? "Leader tab" : "Follower tab"),
});
const shelf = new Shelf(kitchen, (text) => say(find("#announcement"), text));
// For debugging: the stores, read only.
Object.assign(window, { daybook: { orders: kitchen.orders, bots: kitchen.bots } });

function offlineWords() {
  const since = kitchen.savedAt === null ? Date.now() : kitchen.savedAt;
  return `Disconnected: showing the board as of ${clock(since)}. Reconnecting …`;
}

function tellTheDead() {
  const orders = kitchen.orders.deadOrders.length;
  const bots = kitchen.bots.list.filter((bot) => bot.status === "DEAD").length;
  const words = [
    ...(orders === 0 ? [] : [orders === 1 ? "1 dead order" : `${count(orders)} dead orders`]),
    ...(bots === 0 ? [] : [bots === 1 ? "1 bot out of service" : `${count(bots)} bots out of service`]),
  ];
  find("#dead").hidden = words.length === 0;
  say(find("#dead"), words.join(" · "));
}

/** @param {string} selector @param {() => Promise<unknown>} work */
function onPress(selector, work) {
  const button = find(selector);
  button.addEventListener("click", () => notices.attempt(button, work));
}

/** The newest bot whose deletion is not queued already. */
async function removeNewest() {
  const left = kitchen.bots.list.filter((bot) => !outbox.has("DELETE", `/api/bots/${bot.id}`));
  const newest = left.at(-1);
  if (newest !== undefined) await outbox.post("− Bot", "DELETE", `/api/bots/${newest.id}`);
}

onPress("#new-normal", () => outbox.post("New normal order", "POST", "/api/orders", { type: "NORMAL" }));
onPress("#new-vip", () => outbox.post("New VIP order", "POST", "/api/orders", { type: "VIP" }));
// Auto-claiming bots work without an open board.
onPress("#add-bot", () => outbox.post("+ Bot", "POST", "/api/bots", { autoClaim: true }));
onPress("#remove-bot", removeNewest);

kitchen.start();
setInterval(() => strip.tick(kitchen), BARS_MS);
