"""Client records against the log: receipts, and the history of requests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from uuid_utils.compat import uuid7

from daybook.audit.client_records import ClientRecords
from daybook.audit.invariant import Verdict
from daybook.audit.replayed_state import ReplayedState
from daybook.domain.jobs.job import JOB
from tests.audit.histories.in_memory import Story, claim_of, judge
from tests.support.committer import MAPPER

Line = dict[str, Any]
Lines = list[Line]
IDS = ("I-09", "I-10", "I-11", "I-12", "I-27", "I-37")


def good_lines(story: Story) -> Lines:
    """The records of a correct service; the first two are one request, sent twice."""
    lines: Lines = []
    for command_id, position in story.receipts:
        lines.append({"type": "ok", "commandId": command_id, "position": position, "status": 200})
    lines[0] |= {"key": "k1", "fingerprint": "a", "body": "{}"}
    return [
        {"type": "invoke"},
        lines[0],
        *lines,
        {"type": "fail", "key": "k1", "fingerprint": "b", "status": 422},
        {"type": "fail", "key": "k2", "fingerprint": "c", "status": 503, "commandId": uuid7()},
        {"type": "fail", "status": 409, "code": "claim_lost", "commandId": uuid7()},
        {"type": "ok", "atLeast": 10, "shown": 12},
        {"type": "ok", "claims": handed(story)},
    ]


def handed(story: Story) -> list[Line]:
    """Every claim of every job, with its effect key."""
    found: list[Line] = []
    states: dict[Any, Any] = {}
    for entry in story.log:
        if MAPPER.decider_of(entry.topic) is JOB:
            event = MAPPER.decode(entry.topic, bytes(entry.data))
            job = states[entry.aggregate] = JOB.evolve(states.get(entry.aggregate), event)
            if entry.topic == "job.claimed":
                claim_id = claim_of(entry)
                found.append({"jobId": job.id, "claimId": claim_id, "effectKey": job.effect_key})
    return found


@pytest.fixture
def verdicts(story: Story, tmp_path: Path) -> Callable[..., dict[str, Verdict]]:
    def give(lines: Lines, receipts: Sequence[Line] = ()) -> dict[str, Verdict]:
        replay = ReplayedState()
        history_file, receipts_file = tmp_path / "history.ndjson", tmp_path / "receipts.ndjson"
        history_file.write_bytes(b"\n".join(map(json.encode, lines)))
        receipts_file.write_bytes(b"\n".join(map(json.encode, receipts)))
        client_records = ClientRecords(replay.facts, receipts_file, history_file)
        findings = judge(story.log, *IDS, replay=replay, client_records=client_records)
        return {one.id: one.verdict for one in findings.values()}

    return give


Verdicts = Callable[..., dict[str, Verdict]]


def test_the_records_of_a_correct_service_are_valid(story: Story, verdicts: Verdicts) -> None:
    assert verdicts(good_lines(story)) == dict.fromkeys(IDS, Verdict.VALID)


def test_without_records_every_verdict_is_unknown(verdicts: Verdicts) -> None:
    assert verdicts([]) == dict.fromkeys(IDS, Verdict.UNKNOWN)


def ok_at(lines: Lines, nth: int) -> Line:
    """An acknowledged write; each is a line of its own."""
    return [line for line in lines if line["type"] == "ok" and "commandId" in line][nth]


def a_receipt_is_not_in_the_log(lines: Lines) -> None:
    ok_at(lines, 7)["commandId"] = uuid7()


def a_receipt_names_another_position(lines: Lines) -> None:
    ok_at(lines, 7)["position"] += 1


def a_receipt_says_that_nothing_happened(lines: Lines) -> None:
    ok_at(lines, 7)["position"] = None


def a_command_that_no_client_sent_is_in_the_log(lines: Lines) -> None:
    lines.remove(ok_at(lines, 6))


def the_same_request_has_another_body(lines: Lines) -> None:
    lines.append({**ok_at(lines, 0), "body": "{1}"})


def the_same_request_has_another_status(lines: Lines) -> None:
    lines.append({**ok_at(lines, 0), "status": 201})


def the_same_request_has_another_receipt(lines: Lines) -> None:
    lines.append({**ok_at(lines, 0), "position": 5})


def the_same_request_is_refused(lines: Lines) -> None:
    lines.append({**ok_at(lines, 0), "type": "fail", "status": 404})


def another_request_is_answered_under_the_key(lines: Lines) -> None:
    lines.append({**ok_at(lines, 0), "fingerprint": "b"})


def another_request_is_refused_for_good(lines: Lines) -> None:
    lines.append({"type": "fail", "key": "k1", "fingerprint": "b", "status": 404})


def another_request_is_done_under_the_key(lines: Lines) -> None:
    ok_at(lines, 9).update({"key": "k1", "fingerprint": "z"})


def a_refused_write_is_in_the_log(lines: Lines) -> None:
    ok_at(lines, 7).update({"type": "fail", "status": 409, "code": "conflict"})


def a_write_without_a_database_is_in_the_log(lines: Lines) -> None:
    ok_at(lines, 7).update({"type": "fail", "status": 503})


def a_write_that_was_too_much_is_in_the_log(lines: Lines) -> None:
    ok_at(lines, 7).update({"type": "fail", "status": 429})


def two_attempts_have_two_keys(lines: Lines) -> None:
    claims = lines[-1]["claims"]
    twice = [one for one in claims if sum(one["effectKey"] == c["effectKey"] for c in claims) > 1]
    twice[0]["effectKey"] += "0"


def two_lives_have_one_key(lines: Lines) -> None:
    claims = lines[-1]["claims"]
    first = next(one for one in claims if one["effectKey"].endswith("-1"))
    second = next(one for one in claims if one["effectKey"].endswith("-2"))
    second["effectKey"] = first["effectKey"]


def a_worker_was_given_an_unknown_claim(lines: Lines) -> None:
    lines[-1]["claims"][0]["claimId"] = uuid7()


def an_older_state_is_shown(lines: Lines) -> None:
    lines.append({"type": "ok", "atLeast": 10, "shown": 9})


def nothing_is_shown(lines: Lines) -> None:
    lines.append({"type": "ok", "atLeast": 10})


def the_beginning_is_shown(lines: Lines) -> None:
    lines.append({"type": "ok", "atLeast": 1, "shown": 0})


BAD = {
    "I-09": [
        a_receipt_is_not_in_the_log,
        a_receipt_names_another_position,
        a_receipt_says_that_nothing_happened,
        a_command_that_no_client_sent_is_in_the_log,
    ],
    "I-10": [
        the_same_request_has_another_body,
        the_same_request_has_another_status,
        the_same_request_has_another_receipt,
        the_same_request_is_refused,
    ],
    "I-11": [
        another_request_is_answered_under_the_key,
        another_request_is_refused_for_good,
        another_request_is_done_under_the_key,
    ],
    "I-12": [
        a_refused_write_is_in_the_log,
        a_write_without_a_database_is_in_the_log,
        a_write_that_was_too_much_is_in_the_log,
    ],
    "I-27": [
        two_attempts_have_two_keys,
        two_lives_have_one_key,
        a_worker_was_given_an_unknown_claim,
    ],
    "I-37": [an_older_state_is_shown, nothing_is_shown, the_beginning_is_shown],
}


@pytest.mark.parametrize(
    ("broken", "spoil"),
    [(broken, spoil) for broken, spoils in BAD.items() for spoil in spoils],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_records_that_contradict_the_log_are_rejected(
    story: Story, verdicts: Verdicts, broken: str, spoil: Callable[[Lines], None]
) -> None:
    lines = good_lines(story)
    spoil(lines)

    assert verdicts(lines)[broken] is Verdict.INVALID


def test_a_request_without_an_answer_may_have_been_executed(
    story: Story, verdicts: Verdicts
) -> None:
    lines = good_lines(story)
    a_command_that_no_client_sent_is_in_the_log(lines)
    lines.append({"type": "info"})

    assert verdicts(lines)["I-09"] is Verdict.VALID


def test_a_request_refused_and_then_executed_under_the_same_key_is_valid(
    story: Story, verdicts: Verdicts
) -> None:
    lines = good_lines(story)
    lines.insert(0, {**ok_at(lines, 0), "type": "fail", "status": 503, "body": "busy"})

    assert set(verdicts(lines).values()) == {Verdict.VALID}


def test_receipts_alone_prove_acknowledged_writes(story: Story, verdicts: Verdicts) -> None:
    receipts = [{"commandId": one, "position": position} for one, position in story.receipts[::3]]

    assert verdicts([], receipts)["I-09"] is Verdict.VALID
    receipts[4]["position"] = 1
    assert verdicts([], receipts)["I-09"] is Verdict.INVALID
