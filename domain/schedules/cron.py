"""When a cron expression is due in a time zone, around changes of the clock as everywhere else.

The rules are those of Debian's cron, to which the library keeps. A time of day that the clocks
jump over is due at the first moment after the jump; one that they pass twice is due the first time
only. A minute or hour that begins with * means an interval, which no change of the clock disturbs.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from daybook.domain.errors import BadCronError, NeverDueError, UnknownTimeZoneError

FIELDS_COUNT = 5
_SECOND = timedelta(seconds=1)


class Cron(Struct, frozen=True, gc=False):
    """An expression of five fields, and the time zone whose clocks it looks at."""

    expression: str
    time_zone: str

    def check(self, now: datetime) -> None:
        """Refuses what cannot be read, and what is never due."""
        check_time_zone(self.time_zone)
        # With six the library would read seconds: nothing here runs more often than every minute.
        if len(self.expression.split()) != FIELDS_COUNT:
            raise BadCronError(self.expression, f"it must have {FIELDS_COUNT} fields")
        try:
            CronSim(self.expression, now)
        except (CronSimError, ValueError) as error:
            raise BadCronError(self.expression, str(error).lower()) from None
        if self.next(now) is None:
            raise NeverDueError(self.expression)

    def slots(self, *, since: datetime) -> Iterator[datetime]:
        """Every moment at which it is due, from `since` on, in UTC."""
        before = (since - _SECOND).astimezone(ZoneInfo(self.time_zone))
        for slot in CronSim(self.expression, before):
            # In an hour that comes twice it may begin with one that is over.
            if (moment := slot.astimezone(UTC)) >= since:
                yield moment

    def next(self, after: datetime) -> datetime | None:
        slots = self.slots(since=after)
        return next((slot for slot in slots if slot > after), None)

    def latest(self, *, since: datetime, upto: datetime) -> datetime:
        """The last one of those between; `since` is one of them."""
        last = since
        for slot in takewhile(lambda slot: slot <= upto, self.slots(since=self._before(upto))):
            last = max(last, slot)
        return last

    def _before(self, moment: datetime) -> datetime:
        """One that is due near that moment and not after it. In an hour that comes twice the
        library's way back may miss the last ones."""
        way_back = CronSim(self.expression, self._local(moment + _SECOND), reverse=True)
        return next(way_back).astimezone(UTC)

    def _local(self, moment: datetime) -> datetime:
        return moment.replace(microsecond=0).astimezone(ZoneInfo(self.time_zone))


def check_time_zone(name: str) -> None:
    if name not in _time_zones():
        raise UnknownTimeZoneError(name)


@cache
def _time_zones() -> frozenset[str]:
    """The names that IANA gives: a system's own directory has others beside them."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())
