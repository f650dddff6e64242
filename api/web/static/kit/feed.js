/**
 * Everything that changes, as it happens, from a source that may be cut at any moment.
 *
 * Opened first and read second: what happens in between is held back and handed over after the
 * whole was read, so nothing is missed; what comes twice is known by its version. While the source
 * is cut or silent, the whole is read again every two seconds.
 */

const POLL_MS = 2000;
const PULSE_SECONDS = 2;
// Three pulses: a connection that is half open says nothing at all, for ever.
const SILENCE_MS = 6500;

/** @typedef {"live" | "polling" | "offline"} FeedState */
/**
 * @typedef {object} Change
 * @property {number} position
 * @property {string} topic
 * @property {string} id
 * @property {number} version
 * @property {string} recordedAt
 * @property {Record<string, any>} data
 */
/**
 * @typedef {object} Listener what a source tells
 * @property {() => void} opened
 * @property {(changes: Change[], position: number) => void} heard
 * @property {() => void} cut
 */
/** @typedef {{open: (listener: Listener) => void, close: () => void}} Source */

/** The server's own stream. @implements {Source} */
export class StreamSource {
  /** @type {EventSource | null} */
  #events = null;

  /** @param {string[]} kinds names of events: order, bot, job … */
  constructor(kinds) {
    this.kinds = kinds;
  }

  /** @param {Listener} listener */
  open(listener) {
    this.close();
    const events = new EventSource(`/api/stream?pulse=${PULSE_SECONDS}`);
    this.#events = events;
    events.onopen = () => listener.opened();
    // A browser would come back by itself, but from where it was: hours later that is a long way.
    events.onerror = () => listener.cut();
    events.addEventListener("pulse", (event) => listener.heard([], JSON.parse(event.data).position));
    for (const kind of this.kinds) {
      events.addEventListener(kind, (event) => {
        const change = JSON.parse(event.data);
        listener.heard([change], change.position);
      });
    }
  }

  close() {
    this.#events?.close();
    this.#events = null;
  }
}

/** For pages of guests, to whom the stream is not open: they ask. @implements {Source} */
export class NoSource {
  open() {}
  close() {}
}

export class Feed {
  /** @type {FeedState | null} */
  state = null;
  /** @type {Change[] | null} what is held back while the whole is read */
  #held = null;
  /** Whether it is to be read once more, since a reading under way may have begun too early. */
  #isWanted = false;
  /** @type {Source | null} */
  #source = null;
  #heardAt = 0;
  /** Counts the openings: what an earlier one still tells is of no interest. */
  #opening = 0;
  #isOpen = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  /**
   * @param {object} whom
   * @param {() => Promise<void>} whom.refresh reads the whole
   * @param {(changes: Change[], position: number) => void} whom.onHeard
   * @param {(state: FeedState) => void} whom.onState
   */
  constructor(whom) {
    this.whom = whom;
    addEventListener("online", () => this.#tick());
    addEventListener("offline", () => this.#cut());
  }

  /** Listens to this source from now on. @param {Source} source */
  use(source) {
    this.stop();
    this.#source = source;
    this.#timer = setInterval(() => this.#tick(), POLL_MS);
    this.#open();
  }

  stop() {
    clearInterval(this.#timer);
    this.#source?.close();
    this.#isOpen = false;
    this.#opening += 1;
  }

  /** Reads the whole: at the beginning, and when something is amiss with the parts. */
  async refresh() {
    this.#isWanted = true;
    if (this.#held !== null) return;
    this.#held = [];
    let isRead = false;
    // Once it fails it is left to the next tick: those who want it must not keep this from telling.
    do {
      this.#isWanted = false;
      isRead = await this.whom.refresh().then(
        () => true,
        () => false,
      );
    } while (isRead && this.#isWanted);
    const held = this.#held;
    this.#held = null;
    if (held.length > 0) this.whom.onHeard(held, held[held.length - 1].position);
    if (isRead) this.#to(this.#isOpen ? "live" : "polling");
    else this.#to("offline");
  }

  #open() {
    const opening = ++this.#opening;
    /** @param {() => void} tell */
    const ifCurrent = (tell) => opening === this.#opening && tell();
    this.#source?.open({
      opened: () => ifCurrent(() => this.#opened()),
      heard: (changes, position) => ifCurrent(() => this.#heard(changes, position)),
      cut: () => ifCurrent(() => this.#cut()),
    });
  }

  #opened() {
    this.#isOpen = true;
    this.#heardAt = performance.now();
    void this.refresh();
  }

  /** @param {Change[]} changes @param {number} position */
  #heard(changes, position) {
    this.#heardAt = performance.now();
    if (this.#held !== null) this.#held.push(...changes);
    else this.whom.onHeard(changes, position);
  }

  #cut() {
    this.#isOpen = false;
    this.#opening += 1;
    this.#source?.close();
    if (!navigator.onLine) this.#to("offline");
    // Whether more than the stream is away shows when the whole is read.
    else if (this.state === "live") this.#to("polling");
  }

  #tick() {
    if (this.#isOpen && performance.now() - this.#heardAt > SILENCE_MS) this.#cut();
    if (!this.#isOpen) {
      if (this.state === "live") this.#to("polling");
      this.#open();
      void this.refresh();
    } else if (this.state !== "live") {
      void this.refresh();
    }
  }

  /** @param {FeedState} state */
  #to(state) {
    if (this.state === state) return;
    this.state = state;
    this.whom.onState(state);
  }
}
