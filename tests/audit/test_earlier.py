"""Two exports of one log: the earlier is a prefix of the later, and no event appears late."""

from collections.abc import Callable

import pytest

from daybook.audit.entries import EarlierExport
from daybook.audit.invariant import Verdict
from tests.audit.histories.in_memory import Log, Story, judge


def compared(story: Story, earlier: Log) -> tuple[Verdict, Verdict]:
    findings = judge(story.log, "I-01", "I-03", earlier=EarlierExport(earlier))
    return findings["I-01"].verdict, findings["I-03"].verdict


@pytest.mark.parametrize("length", [1, 300, None])
def test_a_log_continues_after_an_export(story: Story, length: int | None) -> None:
    assert compared(story, Log(story.log[:length])) == (Verdict.VALID, Verdict.VALID)


def test_without_an_earlier_export_the_verdict_is_unknown(story: Story) -> None:
    assert judge(story.log, "I-01")["I-01"].verdict is Verdict.UNKNOWN


def an_event_is_gone(story: Story) -> None:
    story.drop(100)


def the_end_is_gone(story: Story) -> None:
    del story.log[-5:]


def an_event_says_something_else(story: Story) -> None:
    story.say(story.find("order.failed"), error="the bot did it")


def an_event_has_another_author(story: Story) -> None:
    story.edit(50, actor="somebody else")


@pytest.mark.parametrize(
    "spoil",
    [
        an_event_is_gone,
        the_end_is_gone,
        an_event_says_something_else,
        an_event_has_another_author,
    ],
)
def test_a_change_of_exported_events_is_rejected(
    story: Story, spoil: Callable[[Story], None]
) -> None:
    earlier = Log(story.log)
    spoil(story)

    assert compared(story, earlier)[0] is Verdict.INVALID


@pytest.mark.parametrize("index", [0, 1, 400])
def test_an_event_below_an_exported_position_is_rejected(story: Story, index: int) -> None:
    earlier = Log(story.log)
    del earlier[index]

    assert compared(story, earlier) == (Verdict.INVALID, Verdict.INVALID)
