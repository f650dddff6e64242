"""A lane: the jobs of one partition of a queue, processed one after another. It has no events of
its own; its content and order follow from its jobs."""

from functools import lru_cache
from uuid import UUID, uuid5

from msgspec import json

_LANES = UUID("8a4b1c6e-2f75-5d3b-9c18-60e7f2b9d4a1")


@lru_cache(maxsize=4096)
def lane_id(queue: str, partition: str) -> UUID:
    return uuid5(_LANES, json.encode((queue, partition)).decode())
