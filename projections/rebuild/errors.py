"""Why a projection could not be rebuilt, and what to do. Its running tables are unchanged then."""

from daybook.eventlog.codec import FollowedEvent


class RebuildError(Exception):
    pass


class UnfoldableEventError(Exception):
    """Its aggregate is left out of the tables, and named."""

    def __init__(self, recorded: FollowedEvent, error: str) -> None:
        super().__init__(
            f"{recorded.originator_id}: the event at position {recorded.position} "
            f"({recorded.topic}, version {recorded.originator_version}) cannot be read ({error})"
        )
