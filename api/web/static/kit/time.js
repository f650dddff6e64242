/** The estimated server clock, and formats of times and numbers. */

const COUNT = new Intl.NumberFormat();
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** Server time: the clock of this device may be wrong by hours. */
export class ServerClock {
  #aheadMs = 0;

  /**
   * @param {string} serverNow the time in a response
   * @param {number} askedAt `Date.now()` when the request was sent
   */
  sync(serverNow, askedAt) {
    const answeredAt = Date.now();
    this.#aheadMs = Date.parse(serverNow) - (askedAt + answeredAt) / 2;
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

/** @param {number | string} moment @returns {string} the local time of day */
export function clock(moment) {
  return CLOCK.format(new Date(moment));
}
