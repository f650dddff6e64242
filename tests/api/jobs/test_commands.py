"""Job endpoints: requests, responses and refusals."""

from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from daybook.client.responses import reports_reader
from tests.support.asgi_client import Answer, Api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio


async def create(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.post("/api/jobs", {"queue": "email", "type": "send", **body})
    assert answer.status in (200, 201), answer.body
    job: dict[str, Any] = answer.json["job"]
    return job


async def claim(api: Api, **body: Any) -> list[dict[str, Any]]:
    answer = await api.post("/api/jobs/claim", {"queues": ["email"], "workerId": "w", **body})
    assert answer.status == 200, answer.body
    jobs: list[dict[str, Any]] = answer.json["jobs"]
    return jobs


async def say(api: Api, job: dict[str, Any], what: str, **body: Any) -> Answer:
    return await api.post(f"/api/jobs/{job['id']}/{what}", {"claimId": job["claimId"], **body})


async def test_a_job_is_created_with_all_its_members(api: Api) -> None:
    # S4-04
    job = await create(
        api, payload={"to": "a@b"}, priority=1, subject="booking 7", attemptsMax=5, leaseSeconds=30
    )
    assert (job["status"], job["priority"], job["payload"]) == ("PENDING", 1, {"to": "a@b"})
    assert (job["subject"], job["attempts"], job["attemptsMax"]) == ("booking 7", 0, 5)
    assert (job["leaseSeconds"], job["life"], job["version"]) == (30, 1, 1)
    assert job["effectKey"] == f"{job['id']}-1"
    assert [job[name] for name in ("runAt", "claimId", "result", "error", "finishedAt")] == [
        None
    ] * 5


async def test_omitted_members_have_defaults(api: Api) -> None:
    job = await create(api)
    assert (job["payload"], job["priority"], job["attemptsMax"], job["leaseSeconds"]) == (
        None,
        5,
        3,
        90,
    )


async def test_a_unique_key_answers_200_with_the_job_there_is(api: Api) -> None:
    body = {"queue": "email", "type": "send", "uniqueKey": "booking 7"}
    first, second = await api.post("/api/jobs", body), await api.post("/api/jobs", body)
    assert (first.status, second.status) == (201, 200)
    assert first.json == second.json


async def test_two_equal_jobs_are_two_without_a_unique_key(api: Api) -> None:
    # S1-09, D-24: a unique key comes from the client, never from the payload.
    same = {"queue": "pay", "type": "charge", "payload": {"cents": 500}}
    one, other = [(await api.post("/api/jobs", same)).json["job"]["id"] for _ in range(2)]
    assert one != other
    first, again = [
        (await api.post("/api/jobs", same, idempotency_key="charge-1")).json["job"]["id"]
        for _ in range(2)
    ]
    assert first == again not in (one, other)


async def test_a_thousand_are_created_at_once_and_minimally_answered_if_wished(api: Api) -> None:
    many = {"jobs": [{"queue": "email", "type": "send", "payload": n} for n in range(1000)]}
    answer = await api.post("/api/jobs", many)
    assert [job["payload"] for job in answer.json["jobs"]] == list(range(1000))
    ids = (await api.post("/api/jobs", many, prefer="return=minimal")).json["ids"]
    assert len(set(ids)) == 1000


async def test_of_many_jobs_one_bad_one_means_none(api: Api, database: str) -> None:
    many = {"jobs": [{"queue": "email", "type": "send"}, {"queue": "email"}]}
    answer = await api.post("/api/jobs", many)
    assert answer.problem == (422, "schema")
    assert rows(database, "SELECT count(*) FROM log") == [(0,)]


async def test_a_job_is_claimed_and_done(api: Api) -> None:
    await create(api, payload=[1])
    ((job),) = await claim(api)
    assert (job["status"], job["attempts"], job["workerId"]) == ("PROCESSING", 1, "w")
    assert job["payload"] == [1]
    done = (await say(api, job, "complete", result={"ok": True})).json["job"]
    assert (done["status"], done["result"], done["claimId"]) == ("COMPLETED", {"ok": True}, None)
    assert done["finishedAt"] == done["updatedAt"]


async def test_a_failure_returns_the_time_of_the_next_attempt(api: Api) -> None:
    # S4-20
    await create(api)
    ((job),) = await claim(api)
    failed = (await say(api, job, "fail", error="timeout", retryAfterSeconds=60)).json["job"]
    assert (failed["status"], failed["error"], failed["failures"]) == ("PENDING", "timeout", 1)
    assert failed["runAt"] > job["startedAt"]


async def test_a_failure_for_good_is_dead_and_a_retry_begins_a_new_life(api: Api) -> None:
    # S1-07, S4-24, BAD_INPUT 75
    await create(api)
    ((job),) = await claim(api)
    dead = (await say(api, job, "fail", error="no such address", retryable=False)).json["job"]
    assert (dead["status"], dead["error"]) == ("DEAD", "no such address")
    again = (await api.post(f"/api/jobs/{job['id']}/retry")).json["job"]
    assert (again["status"], again["life"], again["attempts"]) == ("PENDING", 2, 0)
    assert (await api.post(f"/api/jobs/{job['id']}/retry")).problem == (409, "job-not-dead")


async def test_a_snooze_and_a_release_give_the_attempt_back(api: Api) -> None:
    await create(api)
    ((job),) = await claim(api)
    snoozed = (await say(api, job, "snooze", until="2000-01-01T00:00:00Z")).json["job"]
    assert (snoozed["status"], snoozed["attempts"]) == ("PENDING", 0)
    ((job),) = await claim(api)
    released = (await say(api, job, "release")).json["job"]
    assert (released["attempts"], released["interruptions"]) == (0, 1)


async def test_a_lost_claim_is_refused_everywhere(api: Api, database: str) -> None:
    # D-21
    await create(api)
    ((job),) = await claim(api)
    await say(api, job, "release")
    before = rows(database, "SELECT count(*) FROM log")
    for what, body in (
        ("complete", {}),
        ("fail", {"error": "x"}),
        ("snooze", {"until": "2030-01-01T00:00:00Z"}),
        ("release", {}),
        ("heartbeat", {}),
    ):
        assert (await say(api, job, what, **body)).problem == (409, "claim-lost"), what
    assert rows(database, "SELECT count(*) FROM log") == before


async def test_results_come_by_the_thousand_and_each_is_decided_by_itself(api: Api) -> None:
    for _ in range(3):
        await create(api)
    jobs = await claim(api, limit=3)
    await say(api, jobs[1], "release")
    results = [
        {"id": jobs[0]["id"], "claimId": jobs[0]["claimId"], "outcome": "done", "result": 1},
        {"id": jobs[1]["id"], "claimId": jobs[1]["claimId"], "outcome": "done"},
        {"id": jobs[2]["id"], "claimId": jobs[2]["claimId"], "outcome": "fail", "error": "x"},
    ]
    answer = await api.post("/api/jobs/results", {"results": results})
    done, lost, dead = answer.json["results"]
    assert done == {"id": jobs[0]["id"], "status": "COMPLETED"}
    assert (lost["id"], lost["code"]) == (jobs[1]["id"], "claim_lost")
    assert dead["status"] == "DEAD"


async def test_a_minimal_response_lists_only_incomplete_jobs_by_index(api: Api) -> None:
    for _ in range(4):
        await create(api)
    done, failed, again, lost = await claim(api, limit=4)
    results = [
        {"id": done["id"], "claimId": done["claimId"], "outcome": "done"},
        {"id": failed["id"], "claimId": failed["claimId"], "outcome": "fail", "error": "no"},
        {"id": again["id"], "claimId": again["claimId"], "outcome": "done"},
        {"id": again["id"], "claimId": again["claimId"], "outcome": "done"},
        {"id": lost["id"], "claimId": done["claimId"], "outcome": "done"},
    ]
    answer = await api.post("/api/jobs/results", {"results": results}, prefer="return=minimal")
    read = reports_reader([UUID(one["id"]) for one in results])
    assert answer.json["completed"] == 2
    assert [one["place"] for one in answer.json["results"]] == [1, 3, 4]
    outcomes = [(str(one.id), one.status, one.code) for one in read(answer.body)]
    assert outcomes == [
        (done["id"], "COMPLETED", None),
        (failed["id"], "DEAD", None),
        (again["id"], "COMPLETED", None),
        (again["id"], None, "claim_lost"),
        (lost["id"], None, "claim_lost"),
    ]


async def test_results_of_jobs_that_never_were_change_nothing(api: Api, database: str) -> None:
    result = {"id": str(uuid7()), "claimId": str(uuid7()), "outcome": "done"}
    answer = await api.post("/api/jobs/results", {"results": [result]})
    assert answer.json["results"][0]["code"] == "not_found"
    assert rows(database, "SELECT count(*) FROM log") == [(0,)]


async def test_follow_ups_go_into_the_same_queue_unless_another_is_named(api: Api) -> None:
    # S4-12
    await create(api)
    ((job),) = await claim(api)
    then = [{"type": "next", "payload": 1}, {"type": "elsewhere", "queue": "other"}]
    await say(api, job, "complete", then=then)
    ((follow_up),) = await claim(api)
    assert (follow_up["type"], follow_up["payload"]) == ("next", 1)
    ((other),) = await claim(api, queues=["other"])
    assert other["type"] == "elsewhere"


async def test_the_same_request_is_carried_out_once(api: Api) -> None:
    body = {"queue": "email", "type": "send"}
    first = await api.post("/api/jobs", body, idempotency_key="k")
    second = await api.post("/api/jobs", body, idempotency_key="k")
    assert first.json == second.json
    assert second.headers["idempotent-replayed"] == "true"
    wish = {"queues": ["email"], "workerId": "w", "limit": 5}
    one = await api.post("/api/jobs/claim", wish, idempotency_key="c")
    two = await api.post("/api/jobs/claim", wish, idempotency_key="c")
    assert one.json == two.json
    assert len(one.json["jobs"]) == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, (422, "schema")),
        ({"queue": "email"}, (422, "schema")),
        ({"queue": "", "type": "t"}, (422, "schema")),
        ({"queue": "a b", "type": "t"}, (422, "schema")),
        ({"queue": "q" * 101, "type": "t"}, (422, "schema")),
        ({"queue": "q", "type": "t", "priority": 0}, (422, "schema")),
        ({"queue": "q", "type": "t", "priority": 11}, (422, "schema")),
        ({"queue": "q", "type": "t", "attemptsMax": 0}, (422, "schema")),
        ({"queue": "q", "type": "t", "leaseSeconds": 0}, (422, "schema")),
        ({"queue": "q", "type": "t", "runAt": "tomorrow"}, (422, "schema")),
        ({"queue": "q", "type": "t", "runAt": "2026-01-01T00:00:00"}, (422, "schema")),
        ({"queue": "q", "type": "t", "colour": "red"}, (422, "unknown-field")),
        ({"queue": "q", "type": "t", "payload": "x" * 70_000}, (422, "payload-too-large")),
        ({"queue": "q", "type": "t", "payload": "\0"}, (422, "nul-character")),
        ({"jobs": []}, (422, "schema")),
        ({"jobs": [{"queue": "q", "type": "t"}] * 1001}, (422, "schema")),
        ({"jobs": 7}, (422, "schema")),
    ],
)
async def test_a_job_that_does_not_fit_is_refused(
    api: Api, database: str, body: dict[str, Any], problem: tuple[int, str]
) -> None:
    assert (await api.post("/api/jobs", body)).problem == problem
    assert rows(database, "SELECT count(*) FROM log") == [(0,)]


@pytest.mark.parametrize(
    "wish",
    [
        {"queues": [], "workerId": "w"},
        {"queues": ["q"]},
        {"queues": ["q"], "workerId": "w", "limit": 0},
        {"queues": ["q"], "workerId": "w", "limit": 100_000},
        {"queues": ["q"], "workerId": "w", "waitSeconds": 31},
        {"queues": ["q"], "workerId": "w", "leaseSeconds": -1},
        {"queues": ["q"], "workerId": "w", "types": []},
    ],
)
async def test_a_claim_that_makes_no_sense_is_refused(api: Api, wish: dict[str, Any]) -> None:
    assert (await api.post("/api/jobs/claim", wish)).problem == (422, "schema")


async def test_a_body_with_a_member_twice_is_refused_however_large(api: Api) -> None:
    job = '{"queue":"q","type":"t","payload":{"a:b":"c\\u003ad"}}'
    many = ",".join([job] * 3)
    for body in (
        '{"jobs":[' + many.replace('"type":"t"', '"type":"t","type":"u"', 1) + "]}",
        '{"jobs":[' + many + ',{"queue":"q","type":"t","payload":{"x":1,"x":2}}]}',
        '{"queue":"q","type":"t","payload":{"x":1,"x":"\\u003a"}}',
    ):
        answer = await api.send(
            "POST", "/api/jobs", [body.encode()], {"Content-Type": "application/json"}
        )
        assert answer.problem == (400, "duplicate-key"), body


async def test_a_queue_is_paused_limited_and_resumed(api: Api) -> None:
    queue = (await api.ask("PUT", "/api/queues/email", {"paused": True, "concurrency": 2})).json
    assert (queue["queue"]["paused"], queue["queue"]["concurrency"]) == (True, 2)
    await create(api)
    assert await claim(api) == []
    rate = {"count": 10, "seconds": 60}
    queue = (await api.ask("PUT", "/api/queues/email", {"paused": False, "rate": rate})).json
    assert queue["queue"]["concurrency"] == 2
    assert queue["queue"]["rate"] == rate
    assert len(await claim(api)) == 1
    queue = (await api.ask("PUT", "/api/queues/email", {"concurrency": None})).json
    assert queue["queue"]["concurrency"] is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"concurrency": 0}, "schema"),
        ({"rate": {"count": 1}}, "schema"),
        ({"rate": {"count": 1, "seconds": 0}}, "schema"),
        ({"speed": 3}, "unknown-field"),
    ],
)
async def test_settings_of_a_queue_that_make_no_sense_are_refused(
    api: Api, body: dict[str, Any], kind: str
) -> None:
    assert (await api.ask("PUT", "/api/queues/email", body)).problem == (422, kind)


async def test_an_unknown_job_is_not_found(api: Api) -> None:
    for what in ("cancel", "retry"):
        assert (await api.post(f"/api/jobs/{uuid7()}/{what}")).problem == (404, "not-found")
    assert (await api.post("/api/jobs/7/cancel")).problem == (400, "bad-id")


async def test_jobs_of_one_correlation_are_found_together(api: Api, database: str) -> None:
    # S1-26, D-76
    together = str(uuid7())
    body = {"queue": "email", "type": "send"}
    await api.post("/api/jobs", body, daybook_correlation_id=together)
    await api.post("/api/orders", {"type": "VIP"}, daybook_correlation_id=together)
    query = "SELECT topic FROM log WHERE correlation_id = %(id)s ORDER BY position"
    found = rows(database, query, {"id": together})
    assert found == [("job.created",), ("order.created",)]
    refused = await api.post("/api/jobs", body, daybook_correlation_id="booking 7")
    assert refused.problem == (400, "bad-id")


@pytest.mark.parametrize("payload", [b'"\xff"', b'"\\ud800"', b"1e999", b"[" * 1100 + b"]" * 1100])
async def test_a_payload_that_others_could_not_read_is_refused(
    api: Api, database: str, payload: bytes
) -> None:
    body = b'{"queue":"q","type":"t","payload":' + payload + b"}"
    answer = await api.send("POST", "/api/jobs", [body], {"Content-Type": "application/json"})
    assert answer.problem in {(400, "bad-json"), (400, "too-deep")}
    assert rows(database, "SELECT count(*) FROM log") == [(0,)]


async def test_a_dead_job_is_started_over_with_the_enqueue_that_asks_for_it(api: Api) -> None:
    # S4-05, D-62, I-22, I-26: and the audit has nothing against it.
    new = {"queue": "email", "type": "send", "uniqueKey": "k"}
    first = (await api.post("/api/jobs", new)).json["job"]
    ((claimed),) = await claim(api)
    await say(api, claimed, "fail", error="broken", retryable=False)
    kept = await api.post("/api/jobs", new)
    assert (kept.status, kept.json["job"]["status"]) == (200, "DEAD")
    restarted = await api.post("/api/jobs", {"jobs": [{**new, "onDead": "restart"}]})
    ((job),) = restarted.json["jobs"]
    assert (restarted.status, job["id"], job["status"]) == (200, first["id"], "PENDING")
    assert (job["life"], job["attempts"]) == (2, 0)
    refused = await api.post("/api/jobs", {**new, "onDead": "bury"})
    assert refused.status == 422


@pytest.mark.parametrize("end", ["complete", "cancel"])
async def test_a_job_that_is_over_is_not_cancelled(api: Api, database: str, end: str) -> None:
    job = await create(api)
    if end == "complete":
        ((claimed),) = await claim(api)
        await say(api, claimed, "complete")
    else:
        await api.post(f"/api/jobs/{job['id']}/cancel")
    before = rows(database, "SELECT count(*) FROM log")
    refused = await api.post(f"/api/jobs/{job['id']}/cancel")
    assert refused.problem == (409, "job-over")
    assert rows(database, "SELECT count(*) FROM log") == before
