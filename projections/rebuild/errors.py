"""Errors of a rebuild. The running tables are unchanged after any of them."""

from daybook.eventlog.codec import FollowedEvent


class RebuildError(Exception):
    pass


class UnfoldableEventError(Exception):
    """The aggregate of this event is left out of the rebuilt tables and reported."""

    def __init__(self, recorded: FollowedEvent, error: str) -> None:
        super().__init__(
            f"{recorded.originator_id}: the event at position {recorded.position} "
            f"({recorded.topic}, version {recorded.originator_version}) cannot be read ({error})"
        )
