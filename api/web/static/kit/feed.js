/**
 * Changes from a source that may disconnect at any moment.
 *
 * Opens the source, then reads a snapshot; changes in between are buffered and delivered after it, so
 * none is missed, and versions identify duplicates. While the source is down, it polls every 2 s.
 */

const POLL_MS = 2000;
const PULSE_SECONDS = 2;
// Three pulses: a half-open connection stays silent for ever.
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
 * @typedef {object} Listener receives the changes of a source
 * @property {() => void} opened
 * @property {(changes: Change[], position: number) => void} received
 * @property {() => void} disconnected
 */
/** @typedef {{open: (listener: Listener) => void, close: () => void}} Source */

/** The server-sent events of the service. @implements {Source} */
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
    // The browser's own reconnect would resume at the old position: after hours a snapshot is faster.
    events.onerror = () => listener.disconnected();
    events.addEventListener("pulse", (event) => listener.received([], JSON.parse(event.data).position));
    for (const kind of this.kinds) {
      events.addEventListener(kind, (event) => {
        const change = JSON.parse(event.data);
        listener.received([change], change.position);
      });
    }
  }

  close() {
    this.#events?.close();
    this.#events = null;
  }
}

/** For guest pages, which may not use the stream: they poll. @implements {Source} */
export class NoSource {
  open() {}
  close() {}
}

export class Feed {
  /** @type {FeedState | null} */
  state = null;
  /** @type {Change[] | null} buffered while the snapshot is read */
  #buffered = null;
  /** Whether to read again, since the running read may have started too early. */
  #isWanted = false;
  /** @type {Source | null} */
  #source = null;
  #receivedAt = 0;
  /** Counts the openings; events of an earlier one are ignored. */
  #opening = 0;
  #isOpen = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #timer;

  /**
   * @param {object} callbacks
   * @param {() => Promise<void>} callbacks.refresh reads the snapshot
   * @param {(changes: Change[], position: number) => void} callbacks.onChanges
   * @param {(state: FeedState) => void} callbacks.onState
   */
  constructor(callbacks) {
    this.callbacks = callbacks;
    addEventListener("online", () => this.#tick());
    addEventListener("offline", () => this.#disconnected());
  }

  /** Switches to this source. @param {Source} source */
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

  /** Reads the snapshot: at the start, and when changes are missing. */
  async refresh() {
    this.#isWanted = true;
    if (this.#buffered !== null) return;
    this.#buffered = [];
    let isRead = false;
    // After a failure the next tick retries, so that waiting callers are not blocked.
    do {
      this.#isWanted = false;
      isRead = await this.callbacks.refresh().then(
        () => true,
        () => false,
      );
    } while (isRead && this.#isWanted);
    const buffered = this.#buffered;
    this.#buffered = null;
    if (buffered.length > 0) this.callbacks.onChanges(buffered, buffered[buffered.length - 1].position);
    if (isRead) this.#to(this.#isOpen ? "live" : "polling");
    else this.#to("offline");
  }

  #open() {
    const opening = ++this.#opening;
    /** @param {() => void} callback */
    const ifCurrent = (callback) => opening === this.#opening && callback();
    this.#source?.open({
      opened: () => ifCurrent(() => this.#opened()),
      received: (changes, position) => ifCurrent(() => this.#received(changes, position)),
      disconnected: () => ifCurrent(() => this.#disconnected()),
    });
  }

  #opened() {
    this.#isOpen = true;
    this.#receivedAt = performance.now();
    void this.refresh();
  }

  /** @param {Change[]} changes @param {number} position */
  #received(changes, position) {
    this.#receivedAt = performance.now();
    if (this.#buffered !== null) this.#buffered.push(...changes);
    else this.callbacks.onChanges(changes, position);
  }

  #disconnected() {
    this.#isOpen = false;
    this.#opening += 1;
    this.#source?.close();
    if (!navigator.onLine) this.#to("offline");
    // The next snapshot shows whether the service is down, too.
    else if (this.state === "live") this.#to("polling");
  }

  #tick() {
    if (this.#isOpen && performance.now() - this.#receivedAt > SILENCE_MS) this.#disconnected();
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
    this.callbacks.onState(state);
  }
}
