"""Due times of cron expressions in a time zone, by the rules of Debian's cron.

A time skipped by a clock change is due right after it; a time that occurs twice is due the first
time only. A minute or hour field that begins with * is an interval, which clock changes do not
affect.
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
    expression: str
    time_zone: str

    def check(self, now: datetime) -> None:
        """Refuses expressions that are invalid or never due."""
        check_time_zone(self.time_zone)
        # With six fields the library would read seconds; the minimum interval here is one minute.
        if len(self.expression.split()) != FIELDS_COUNT:
            raise BadCronError(self.expression, f"it must have {FIELDS_COUNT} fields")
        try:
            CronSim(self.expression, now)
        except (CronSimError, ValueError) as error:
            raise BadCronError(self.expression, str(error).lower()) from None
        if self.next(now) is None:
            raise NeverDueError(self.expression)

    def slots(self, *, since: datetime) -> Iterator[datetime]:
        """Due times from `since` on, in UTC."""
        before = (since - _SECOND).astimezone(ZoneInfo(self.time_zone))
        for slot in CronSim(self.expression, before):
            # In a repeated hour the first result may lie before `since`.
            if (moment := slot.astimezone(UTC)) >= since:
                yield moment

    def next(self, after: datetime) -> datetime | None:
        slots = self.slots(since=after)
        return next((slot for slot in slots if slot > after), None)

    def latest(self, *, since: datetime, upto: datetime) -> datetime:
        """The last due time up to `upto`; `since` is itself a due time."""
        last = since
        for slot in takewhile(lambda slot: slot <= upto, self.slots(since=self._before(upto))):
            last = max(last, slot)
        return last

    def _before(self, moment: datetime) -> datetime:
        """A due time at or shortly before the moment. In a repeated hour the library's reverse
        search may miss the last ones."""
        reverse = CronSim(self.expression, self._local(moment + _SECOND), reverse=True)
        return next(reverse).astimezone(UTC)

    def _local(self, moment: datetime) -> datetime:
        return moment.replace(microsecond=0).astimezone(ZoneInfo(self.time_zone))


def check_time_zone(name: str) -> None:
    if name not in _time_zones():
        raise UnknownTimeZoneError(name)


@cache
def _time_zones() -> frozenset[str]:
    """IANA names only: a system's zone directory holds other files too."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())
