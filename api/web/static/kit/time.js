/** The server's clock as this page knows it, and how moments and amounts are written. */

const COUNT = new Intl.NumberFormat();
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** What time it is at the server: this device's own clock may be wrong by hours. */
export class ServerClock {
  #aheadMs = 0;

  /**
   * @param {string} serverNow as the server said it
   * @param {number} askedAt `Date.now()` when it was asked; it answered somewhere in between
   */
  note(serverNow, askedAt) {
    const heardAt = Date.now();
    this.#aheadMs = Date.parse(serverNow) - (askedAt + heardAt) / 2;
  }

  /** @returns {number} milliseconds since 1970 */
  now() {
    return Date.now() + this.#aheadMs;
  }
}

/** @param {number} amount */
export function count(amount) {
  return COUNT.format(amount);
}

/** @param {number} ms @returns {string} such as 3.4 s */
export function seconds(ms) {
  return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
}

/** @param {number} ms @returns {string} such as 40 s, 12 min or 3 h */
export function duration(ms) {
  const whole = Math.max(0, Math.floor(ms / 1000));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  return whole < 172_800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86_400)} days`;
}

/** @param {number | string} moment @returns {string} the time of day where this screen hangs */
export function clock(moment) {
  return CLOCK.format(new Date(moment));
}
