"""Due times of cron expressions, also on days with a clock change."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.domain.errors import BadCronError, NeverDueError, UnknownTimeZoneError
from daybook.domain.schedules.cron import Cron

BERLIN = "Europe/Berlin"
# On 29 March 2026 the clocks of Berlin jump from 2:00 to 3:00; on 25 October they go from 3:00
# back to 2:00.
SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)


def times(expression: str, *, since: datetime, count: int, zone: str = BERLIN) -> list[str]:
    slots = islice(Cron(expression, zone).slots(since=since), count)
    return [slot.strftime("%d.%m. %H:%M") for slot in slots]


def test_a_time_of_day_is_that_of_its_zone() -> None:
    assert times("30 7 * * *", since=SPRING, count=3) == [
        "29.03. 05:30",
        "30.03. 05:30",
        "31.03. 05:30",
    ]
    assert times("30 7 * * *", since=SPRING, count=1, zone="UTC") == ["29.03. 07:30"]


def test_a_skipped_time_is_due_right_after_the_change() -> None:
    # 2:30 on 29 March: due at 3:00 in Berlin, which is 1:00 in UTC.
    assert times("30 2 * * *", since=SPRING, count=2) == ["29.03. 01:00", "30.03. 00:30"]


def test_several_skipped_times_are_due_once() -> None:
    assert times("0,30 2 * * *", since=SPRING, count=2) == ["29.03. 01:00", "30.03. 00:00"]


def test_a_repeated_time_is_due_the_first_time_only() -> None:
    # 2:30 on 25 October: at 0:30 in UTC, and not at 1:30 again.
    assert times("30 2 * * *", since=AUTUMN, count=2) == ["25.10. 00:30", "26.10. 01:30"]


def test_no_slot_lies_before_a_start_in_the_repeated_hour() -> None:
    between = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)  # 2:15 in Berlin, for the second time
    assert Cron("30 2 * * *", BERLIN).next(between) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
@pytest.mark.parametrize(("expression", "minutes"), [("*/15 * * * *", 15), ("0 * * * *", 60)])
def test_an_interval_is_the_same_all_through_the_change(
    expression: str, minutes: int, day: datetime
) -> None:
    slots = islice(Cron(expression, BERLIN).slots(since=day), 200)
    assert {after - before for before, after in pairwise(slots)} == {timedelta(minutes=minutes)}


def test_the_next_is_never_the_moment_itself() -> None:
    cron = Cron("0 * * * *", "UTC")
    hour = datetime(2026, 1, 1, 12, tzinfo=UTC)

    assert cron.next(hour) == hour + timedelta(hours=1)
    assert cron.next(hour - timedelta(microseconds=1)) == hour
    assert next(cron.slots(since=hour)) == hour


EXPRESSIONS = st.sampled_from(
    [
        "30 2 * * *",
        "0,30 2 * * *",
        "*/30 2 * * *",
        "0 2,3 * * *",
        "0 */2 * * *",
        "15 1-3 * * *",
        "* * * * *",
        "0 0 * * SUN",
        "5 0 1 * *",
        "0 0 29 2 *",
        "0 12 L * *",
    ]
)
# Without Lord Howe Island, whose clocks change by half an hour: there the library skips one slot of
# an interval within one hour, twice a year.
ZONES = st.sampled_from([BERLIN, "America/New_York", "Atlantic/Azores", "Asia/Kolkata", "UTC"])
CHANGES = st.sampled_from([SPRING, AUTUMN, datetime(2026, 3, 7, 12, tzinfo=UTC)])


@given(expression=EXPRESSIONS, zone=ZONES, day=CHANGES, minutes=st.integers(0, 36 * 60))
def test_the_latest_slot_is_the_last_of_all_slots(
    expression: str, zone: str, day: datetime, minutes: int
) -> None:
    cron, upto = Cron(expression, zone), day + timedelta(minutes=minutes, seconds=7)
    since = next(cron.slots(since=day - timedelta(days=2)))
    if since > upto:
        return
    slots = []
    for slot in cron.slots(since=since):
        if slot > upto:
            break
        slots.append(slot)

    assert cron.latest(since=since, upto=upto) == slots[-1]
    assert slots == sorted(set(slots))


@given(expression=EXPRESSIONS, zone=ZONES, day=CHANGES, minutes=st.integers(0, 36 * 60))
def test_every_moment_has_one_next(expression: str, zone: str, day: datetime, minutes: int) -> None:
    cron, now = Cron(expression, zone), day + timedelta(minutes=minutes)
    following = cron.next(now)
    assert following is not None
    assert following > now
    assert next(cron.slots(since=following)) == following
    assert next(cron.slots(since=now + timedelta(microseconds=1))) == following


BAD = [
    "",
    "* * * *",
    "* * * * * *",
    "@daily",
    "60 * * * *",
    "* 24 * * *",
    "0 0 31 2 *",
    "a b c d e",
]
BAD += ["*/0 * * * *", "1,,2 * * * *", "5-1 * * * *", "0 0 * * MON#6", "² * * * *", "-1 * * * *"]


@pytest.mark.parametrize("expression", [*BAD, "9" * 150 + " * * * *"])
def test_an_invalid_cron_expression_is_refused_with_a_reason(expression: str) -> None:
    with pytest.raises(BadCronError, match="is not a cron expression: "):
        Cron(expression, BERLIN).check(SPRING)


def test_an_expression_that_is_never_due_is_refused() -> None:
    with pytest.raises(NeverDueError):
        Cron("* * */20 * 1L", BERLIN).check(SPRING)


@pytest.mark.parametrize(
    "zone", ["", "Berlin", "Europe", "europe/berlin", "localtime", "right/UTC", "../UTC", "+02:00"]
)
def test_only_iana_names_are_time_zones(zone: str) -> None:
    with pytest.raises(UnknownTimeZoneError):
        Cron("0 2 * * *", zone).check(SPRING)
