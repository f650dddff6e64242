/** The board: draws orders and bots, and sends the commands of its buttons. */

import { find, setText } from "../kit/element.js";
import "../kit/freshness.js";
import "../kit/notices.js";
import "../kit/outbox.js";
import { clock, count } from "../kit/time.js";
import { BotList } from "./bot_list.js";
import { OrderCards } from "./cards.js";
import { BoardState } from "./state.js";

const BARS_MS = 100;

/** @type {import("../kit/freshness.js").Freshness} */
const freshness = find("daybook-freshness");
/** @type {import("../kit/notices.js").Notices} */
const notices = find("daybook-notices");
/** @type {import("../kit/outbox.js").Outbox} */
const outbox = find("daybook-outbox");
const botList = /** @type {BotList} */ (find("bot-list"));

const board = new BoardState({
  orders: (ids) => cards.touch(ids),
  bots: () => {
    botList.show(board);
    find("#remove-bot").disabled = board.bots.list.length === 0;
  },
  position: (position, ageMs) => {
    freshness.update(position, ageMs);
    cards.touch([]);
    showDeadCounts();
  },
  state: (state) => {
    freshness.state = state;
    notices.banner = state === "offline" ? offlineText() : null;
  },
  leader: (isLeader) => setText(find("#role"), isLeader ? "Leader tab" : "Follower tab"),
});
const cards = new OrderCards(board, (text) => setText(find("#announcement"), text));
// For debugging: the stores, read only.
Object.assign(window, { daybook: { orders: board.orders, bots: board.bots } });

function offlineText() {
  const since = board.savedAt === null ? Date.now() : board.savedAt;
  return `Disconnected: showing the board as of ${clock(since)}. Reconnecting …`;
}

function showDeadCounts() {
  const orders = board.orders.deadOrders.length;
  const bots = board.bots.list.filter((bot) => bot.status === "DEAD").length;
  const words = [
    ...(orders === 0 ? [] : [orders === 1 ? "1 dead order" : `${count(orders)} dead orders`]),
    ...(bots === 0 ? [] : [bots === 1 ? "1 bot out of service" : `${count(bots)} bots out of service`]),
  ];
  find("#dead").hidden = words.length === 0;
  setText(find("#dead"), words.join(" · "));
}

/** @param {string} selector @param {() => Promise<unknown>} work */
function onPress(selector, work) {
  const button = find(selector);
  button.addEventListener("click", () => notices.attempt(button, work));
}

/** The newest bot whose deletion is not queued already. */
async function removeNewest() {
  const left = board.bots.list.filter((bot) => !outbox.has("DELETE", `/api/bots/${bot.id}`));
  const newest = left.at(-1);
  if (newest !== undefined) await outbox.post("− Bot", "DELETE", `/api/bots/${newest.id}`);
}

onPress("#new-normal", () => outbox.post("New normal order", "POST", "/api/orders", { type: "NORMAL" }));
onPress("#new-vip", () => outbox.post("New VIP order", "POST", "/api/orders", { type: "VIP" }));
// Auto-claiming bots work without an open board.
onPress("#add-bot", () => outbox.post("+ Bot", "POST", "/api/bots", { autoClaim: true }));
onPress("#remove-bot", removeNewest);

board.start();
setInterval(() => botList.tick(board), BARS_MS);
