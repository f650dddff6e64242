"""Test data for the operations page."""

from typing import Any

from playwright.sync_api import Page, expect

from tests.support.running.service_process import ServiceProcess


def enqueue(service: ServiceProcess, count: int = 1, **fields: Any) -> list[Any]:
    job = {"queue": "email", "type": "send", "payload": {"to": "ada@example.org"}, **fields}
    return list(service.ask("POST", "/api/jobs", {"jobs": [job] * count})["jobs"])


def claim(
    service: ServiceProcess, limit: int = 1, queue: str = "email", worker: str = "w1"
) -> list[Any]:
    body = {"queues": [queue], "workerId": worker, "limit": limit}
    return list(service.ask("POST", "/api/jobs/claim", body)["jobs"])


def complete(service: ServiceProcess, jobs: list[Any]) -> None:
    results = [{"id": job["id"], "claimId": job["claimId"], "outcome": "done"} for job in jobs]
    service.ask("POST", "/api/jobs/results", {"results": results})


def bury(
    service: ServiceProcess, count: int, error: str = "no such address", **fields: Any
) -> list[Any]:
    """So many dead jobs."""
    enqueue(service, count, **fields)
    jobs = claim(service, count, fields.get("queue", "email"))
    for job in jobs:
        failure = {"claimId": job["claimId"], "error": error, "retryable": False}
        service.ask("POST", f"/api/jobs/{job['id']}/fail", failure)
    return jobs


def statuses(service: ServiceProcess, jobs: list[Any]) -> set[str]:
    return {service.get(f"/api/jobs/{job['id']}")["job"]["status"] for job in jobs}


def be_read(page: Page) -> None:
    """Waits until the view replaces its loading text."""
    expect(page.locator("main .view")).to_be_visible()
    expect(page.locator("daybook-freshness")).to_have_attribute("data-state", "polling")


def travel(page: Page, position: int) -> None:
    """Moves the slider of time, as a hand would."""
    slider = page.get_by_role("slider")
    slider.evaluate(
        "(it, to) => { it.value = to; it.dispatchEvent(new Event('input')); }", position
    )
    expect(page.locator("ops-past")).to_have_attribute("data-position", str(position))


def break_bot(service: ServiceProcess) -> None:
    """One that is out of service."""
    bot = service.bot(failuresMax=2, completion="ack")
    for error in ("the basket sticks", "the fryer is off"):
        service.order("VIP")
        order = service.ask("POST", f"/api/bots/{bot['id']}/claim")["order"]
        failure = {"claimId": order["claimId"], "error": error, "retryable": False}
        service.ask("POST", f"/api/orders/{order['id']}/fail", failure)


def busy_day(service: ServiceProcess) -> None:
    """Something of everything."""
    bury(service, 3, "SMTP 550: no such mailbox <ada@example.org>")
    bury(service, 2, "timeout after 30 s", queue="invoices", type="issue")
    enqueue(service, 40)
    complete(service, claim(service, 12))
    claim(service, 3, worker="mailer-1")
    claim(service, 2, worker="mailer-2")
    enqueue(service, 5, queue="invoices", type="issue", subject="guest-17")
    enqueue(service, 4, queue="reports", type="nightly", runAt="2100-01-01T00:00:00Z")
    service.ask("PUT", "/api/queues/reports", {"paused": True})
    service.orders(6)
    service.orders(2, "VIP")
    for _ in range(2):
        service.bot(autoClaim=True)
