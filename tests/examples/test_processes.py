"""The worked example as people run it, and as it is killed: in processes of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from examples.bookings.standins.standin import How
from tests.examples.firm import Firm, open_firm, variables_of
from tests.processes import ROOT, SECONDS_MAX, environment, eventually
from tests.processors.instance import serving

TERMINATE_WAITERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
"""


def example(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "examples.bookings", *arguments],
        cwd=ROOT,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
