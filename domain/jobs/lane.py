"""A lane: the jobs of one partition in one queue, which are done one after another.

It has no events of its own: what is in it, and in which order, are the jobs' own.
"""

from functools import lru_cache
from uuid import UUID, uuid5

from msgspec import json

_LANES = UUID("8a4b1c6e-2f75-5d3b-9c18-60e7f2b9d4a1")


@lru_cache(maxsize=4096)
def lane_id(queue: str, partition: str) -> UUID:
    return uuid5(_LANES, json.encode((queue, partition)).decode())
