"""The thread that keeps the embedded PostgreSQL running."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.embedded.data_directory import bound_log, open_log
from daybook.eventlog.postgres.embedded.postmaster import (
    Launch,
    Postmaster,
    lingers,
    read_postmaster,
    stop_process,
    why_not_started,
)

LINGER_SECONDS_MAX = 30.0
# Replaying the write-ahead log after a crash takes as long as it takes; this is a last limit.
READY_SECONDS_MAX = 600.0
POLL_SECONDS = 0.01
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 1.0
# A server that ends sooner than this has a lasting trouble, and is not hurried.
STEADY_SECONDS = 10.0
LOG_CHECK_SECONDS = 60.0
LAST_WORDS_BYTES_MAX = 4_000


class Watch:
    """The thread that starts the server and starts it again whenever it ends by itself.

    One thread does all the starting and lives until the end, because the kernel ties the server
    to the thread that started it: a shorter life would take the server along.
    """

    def __init__(self, launch: Launch, say: Callable[[str], None]) -> None:
        self._launch = launch
        self._home = launch.home
        self._say = say
        self._log = open_log(self._home)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        # Guards the moment between "are we stopping?" and "there is a process to stop".
        self._spawning = threading.Lock()
        # What came of each attempt, until the first that worked: the server or its last words.
        self._outcomes: SimpleQueue[Postmaster | str] = SimpleQueue()
        self._started = False
        self._told = False
        self._thread = threading.Thread(target=self._run, name="postgres-watch", daemon=True)

    def start(self) -> Postmaster:
        self._thread.start()
        lingering_until = time.monotonic() + LINGER_SECONDS_MAX
        while True:
            try:
                outcome = self._outcomes.get(timeout=READY_SECONDS_MAX)
            except Empty:
                raise SetupError(
                    f"PostgreSQL has not become ready in {READY_SECONDS_MAX:.0f} seconds: "
                    f"read {self._home.log}."
                ) from None
            if isinstance(outcome, Postmaster):
                return outcome
            if not lingers(outcome) or time.monotonic() > lingering_until:
                raise why_not_started(outcome, self._home)

    def stop(self) -> None:
        self._stopping.set()
        with self._spawning:
            process = self._process
        if process is not None:
            stop_process(process)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._log)
        self._home.remove_short_socket_directory()

    def _run(self) -> None:
        retry_seconds = RETRY_SECONDS_MIN
        while not self._stopping.is_set():
            if self._serve_once():
                retry_seconds = RETRY_SECONDS_MIN
            self._stopping.wait(retry_seconds)
            retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)

    def _serve_once(self) -> bool:
        """Start the server and wait until it ends; says whether it has run well in between."""
        said_before = os.fstat(self._log).st_size
        try:
            process = self._spawn()
        except OSError as error:
            self._failed(str(error))
            return False
        if process is None:
            return False
        postmaster = self._await_ready(process)
        ready_at = time.monotonic()
        if postmaster is not None:
            self._ready(postmaster)
            self._await_end(process)
        if self._stopping.is_set():
            return False
        if postmaster is None:
            self._failed(self._words_since(said_before))
            return False
        self._tell("PostgreSQL stopped by itself; starting it again.")
        return time.monotonic() - ready_at > STEADY_SECONDS

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        with self._spawning:
            if self._stopping.is_set():
                return None
            bound_log(self._log)
            self._process = self._launch.spawn(self._log)
            return self._process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> Postmaster | None:
        while process.poll() is None:
            with suppress(OSError):
                found = read_postmaster(self._home.pgdata)
                if found and found.pid == process.pid and found.status == "ready":
                    return found
            time.sleep(POLL_SECONDS)
        return None

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                process.wait(LOG_CHECK_SECONDS)
                return
            except subprocess.TimeoutExpired:
                with suppress(OSError):
                    bound_log(self._log)

    def _ready(self, postmaster: Postmaster) -> None:
        if self._started:
            self._tell("PostgreSQL runs again.")
        else:
            self._outcomes.put(postmaster)
        self._started, self._told = True, False

    def _failed(self, words: str) -> None:
        """Before the first success it is for `start` to judge; later we try on and say so once."""
        if not self._started:
            self._outcomes.put(words)
        elif not lingers(words) and not self._told:
            self._told = True
            self._tell(f"{why_not_started(words, self._home)} Trying again every second.")

    def _tell(self, sentence: str) -> None:
        """Whoever listened may be gone, with the terminal say; the server shall not go with it."""
        with suppress(OSError, ValueError):
            self._say(sentence)

    def _words_since(self, position: int) -> str:
        size = os.fstat(self._log).st_size
        begin = max(min(position, size), size - LAST_WORDS_BYTES_MAX)
        return os.pread(self._log, LAST_WORDS_BYTES_MAX, begin).decode(errors="replace")
