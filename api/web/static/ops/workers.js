/** Workers, bots and their leases. */

import { read } from "../kit/client.js";
import { arrange, element, setText } from "../kit/element.js";
import { ServerClock, clock, count, duration, seconds } from "../kit/time.js";
import { View, badge, fill, heading, itemLink, table } from "./view.js";

/** @typedef {{kind: string, id: string, claimId: string, holder: string, label: string, attempts: number, startedAt: string, until: string}} Lease */
/** @typedef {{kind: string, name: string, held: number, since: string, firstUntil: string}} Holder */

export class WorkersView extends View {
  heading = "Workers";
  #clock = new ServerClock();
  #holders = table("Workers and bots", ["Name", "Kind", "Leases", "Since", "First expires in"]);
  #leases = table("Leases", ["Work", "Item", "Holder", "Attempt", "Elapsed", "Expires", "Time left"]);
  #noHolders = element("p", { class: "empty" }, "No active workers or bots.");
  #cut = element("p", { class: "hint", hidden: true });

  build() {
    return [
      heading("Workers and bots"),
      this.#noHolders,
      this.#holders.box,
      heading("Leases"),
      this.#cut,
      this.#leases.box,
    ];
  }

  async show() {
    const askedAt = Date.now();
    const leases = await read("/api/leases");
    this.#clock.sync(leases.serverNow, askedAt);
    const isIdle = leases.holders.length === 0;
    this.#noHolders.hidden = !isIdle;
    this.#holders.box.hidden = this.#leases.box.hidden = isIdle;
    this.#cut.hidden = leases.held.length === leases.heldCount;
    setText(this.#cut, `Showing ${count(leases.held.length)} of ${count(leases.heldCount)} leases, earliest expiry first.`);
    arrange(this.#holders.body, /** @type {Holder[]} */ (leases.holders), (one) => one.name, () => cells(5), (row, one) => this.#describeHolder(row, one));
    arrange(this.#leases.body, /** @type {Lease[]} */ (leases.held), (one) => one.claimId, () => cells(7), (row, one) => this.#describeLease(row, one));
  }

  /** @param {Element} row @param {Holder} holder */
  #describeHolder(row, holder) {
    const [who, kind, held, since, left] = row.children;
    fill(who, holder.kind === "bot" ? itemLink(holder.name) : holder.name);
    fill(kind, holder.kind);
    fill(held, count(holder.held));
    fill(since, clock(holder.since));
    fill(left, this.#left(holder.firstUntil));
  }

  /** @param {Element} row @param {Lease} lease */
  #describeLease(row, lease) {
    const [what, item, holder, attempt, since, until, left] = row.children;
    fill(what, lease.label);
    fill(item, itemLink(lease.id));
    fill(holder, lease.kind === "order" ? itemLink(lease.holder) : lease.holder);
    fill(attempt, String(lease.attempts));
    fill(since, duration(this.#clock.now() - Date.parse(lease.startedAt)));
    fill(until, clock(lease.until));
    fill(left, this.#left(lease.until));
  }

  /** @param {string} until */
  #left(until) {
    const ms = Date.parse(until) - this.#clock.now();
    return ms < 0 ? badge("overdue") : ms < 60_000 ? seconds(ms) : duration(ms);
  }
}

/** @param {number} amount */
function cells(amount) {
  const others = Array.from({ length: amount - 1 }, () => element("td"));
  return element("tr", {}, element("th", { scope: "row" }), ...others);
}

customElements.define("ops-workers", WorkersView);
