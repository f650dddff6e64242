"""Why a projection could not be rebuilt, and what to do. The running one is as it was."""

from eventlog.mapper import FollowedEvent


class RebuildError(Exception):
    pass


class UnfoldableEventError(RebuildError):
    def __init__(self, recorded: FollowedEvent) -> None:
        super().__init__(
            f"The event at position {recorded.position} ({recorded.topic}, version "
            f"{recorded.originator_version} of {recorded.originator_id}) does not follow from "
            "those before it: 'daybook audit check' says more."
        )
