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
    is_lingering,
    read_postmaster,
    start_error,
    stop_process,
)

LINGER_SECONDS_MAX = 30.0
# A last limit: replaying the write-ahead log after a crash can take long.
READY_SECONDS_MAX = 600.0
POLL_SECONDS = 0.01
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 1.0
# A server that ran for a shorter time is restarted with backoff.
STEADY_SECONDS = 10.0
LOG_CHECK_SECONDS = 60.0
OUTPUT_BYTES_MAX = 4_000


class Supervisor:
    """Starts the server, and restarts it when it ends by itself. One thread does so until the end,
    because the kernel stops the server together with the thread that started it."""

    def __init__(self, launch: Launch, say: Callable[[str], None]) -> None:
        self._launch = launch
        self._home = launch.home
        self._say = say
        self._log = open_log(self._home)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        # Makes checking `_stopping` and setting `_process` atomic.
        self._spawning = threading.Lock()
        # Results of start attempts until the first success: the server, or the output of a failure.
        self._outcomes: SimpleQueue[Postmaster | str] = SimpleQueue()
        self._started = False
        self._has_reported = False
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
            if not is_lingering(outcome) or time.monotonic() > lingering_until:
                raise start_error(outcome, self._home)

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
        """Starts the server and waits for its end; returns whether it ran for STEADY_SECONDS."""
        log_size = os.fstat(self._log).st_size
        try:
            process = self._spawn()
        except OSError as error:
            self._report_failure(str(error))
            return False
        if process is None:
            return False
        postmaster = self._await_ready(process)
        ready_at = time.monotonic()
        if postmaster is not None:
            self._report_ready(postmaster)
            self._await_end(process)
        if self._stopping.is_set():
            return False
        if postmaster is None:
            self._report_failure(self._output_since(log_size))
            return False
        self._report("PostgreSQL stopped by itself; starting it again.")
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

    def _report_ready(self, postmaster: Postmaster) -> None:
        if self._started:
            self._report("PostgreSQL runs again.")
        else:
            self._outcomes.put(postmaster)
        self._started, self._has_reported = True, False

    def _report_failure(self, output: str) -> None:
        """Before the first success `start` handles the failure; later it is reported once."""
        if not self._started:
            self._outcomes.put(output)
        elif not is_lingering(output) and not self._has_reported:
            self._has_reported = True
            self._report(f"{start_error(output, self._home)} Trying again every second.")

    def _report(self, message: str) -> None:
        """A closed terminal must not end the server's thread."""
        with suppress(OSError, ValueError):
            self._say(message)

    def _output_since(self, position: int) -> str:
        size = os.fstat(self._log).st_size
        begin = max(min(position, size), size - OUTPUT_BYTES_MAX)
        return os.pread(self._log, OUTPUT_BYTES_MAX, begin).decode(errors="replace")
