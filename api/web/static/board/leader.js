/**
 * Leader election among the tabs of a browser, by a lease in local storage.
 *
 * Local storage has no compare-and-set: a tab writes its id, waits, and leads only if its id is still
 * there. If two tabs lead for a moment, the server still assigns each order once.
 */

import { identifier } from "../kit/client.js";
import { load, remove, save } from "../kit/storage.js";

export const ID_KEY = "feedme-leader-id";
export const LEASE_KEY = "feedme-leader-lease";
export const LEASE_MS = 4000;
export const HEARTBEAT_MS = 2000;
const LOOK_MS = 250;
const SETTLE_MS = 100;

/** @typedef {{leaderId: string, expiresAt: number}} Lease */

export class Leadership {
  id = identifier();
  isLeader = false;
  #renewedAt = 0;
  #isContesting = false;

  /** @param {(lease: Lease | null) => void} announce notifies the other tabs
   *  @param {(isLeader: boolean) => void} onChange */
  constructor(announce, onChange) {
    this.announce = announce;
    this.onChange = onChange;
  }

  start() {
    try {
      // Per tab: a duplicated tab gets its own id as well.
      sessionStorage.setItem(ID_KEY, this.id);
    } catch {
      // Stored for debugging only.
    }
    addEventListener("pagehide", () => this.#resign());
    addEventListener("storage", (event) => event.key === LEASE_KEY && this.look());
    setInterval(() => this.look(), LOOK_MS);
    this.look();
  }

  /** Renews its own lease, follows another leader, or contests an expired lease. */
  look() {
    const lease = this.#current();
    if (lease !== null && lease.leaderId !== this.id) this.#become(false);
    else if (lease === null) this.#contest();
    else if (this.isLeader && Date.now() - this.#renewedAt >= HEARTBEAT_MS) this.#renew();
  }

  /** @returns {Lease | null} the valid lease, if any */
  #current() {
    const lease = load(LEASE_KEY);
    const leftMs = (lease?.expiresAt ?? 0) - Date.now();
    // A lease longer than the maximum predates a clock change.
    return leftMs > 0 && leftMs <= LEASE_MS ? lease : null;
  }

  #contest() {
    this.#become(false);
    if (this.#isContesting) return;
    this.#isContesting = true;
    this.#write();
    setTimeout(() => {
      this.#isContesting = false;
      if (this.#current()?.leaderId === this.id) {
        this.#renew();
        this.#become(true);
      }
    }, SETTLE_MS * (1 + Math.random()));
  }

  #renew() {
    this.announce(this.#write());
  }

  #write() {
    this.#renewedAt = Date.now();
    const lease = { leaderId: this.id, expiresAt: this.#renewedAt + LEASE_MS };
    save(LEASE_KEY, lease);
    return lease;
  }

  #resign() {
    if (!this.isLeader) return;
    remove(LEASE_KEY);
    this.#become(false);
    this.announce(null);
  }

  /** @param {boolean} isLeader */
  #become(isLeader) {
    if (this.isLeader === isLeader) return;
    this.isLeader = isLeader;
    this.onChange(isLeader);
  }
}
