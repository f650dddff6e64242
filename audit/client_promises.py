"""Invariants on client records: acknowledged writes are in the log once, and answers do not
change."""

from typing import ClassVar

from daybook.audit.invariant import Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.jobs.job import Job


class ClientPromise(Invariant):
    """Checked at the end, by SQL on the client records."""

    relevant: ClassVar[str]  # Finds a row that the invariant applies to
    contradiction: ClassVar[str]
    reason: ClassVar[str]
    sets_seen = True

    def end(self) -> None:
        client_records = self.case.client_records
        if client_records is not None:
            self.seen = client_records.first(self.relevant) is not None
            if found := client_records.first(self.contradiction):
                self.report(self.reason.format(*found))


class AcknowledgedIsInLog(ClientPromise):
    id = "I-09"
    statement = "Every acknowledged write is in the log, once, where its receipt says."
    relevant = "SELECT 1 FROM receipts"
    contradiction = """
    SELECT source_line, receipts.position, logged.position
    FROM receipts LEFT JOIN (
        SELECT key AS command, max(position) AS position
        FROM facts_command GROUP BY key
    ) AS logged USING (command)
    WHERE receipts.position IS NOT logged.position
    """
    reason = "{0} names position {1}, but the last event of its command is at {2}"

    # The history covers all clients between its first and last position: commands in between that
    # no client sent, beyond those without an answer, are a fault.
    unexpected: ClassVar[str] = """
    WITH span AS (SELECT min(position) AS since, max(position) AS until FROM receipts),
    unknown AS (
        SELECT position
        FROM facts_command, span
        WHERE value LIKE 'open %' AND position BETWEEN since AND until
          AND key NOT IN (SELECT command FROM answers WHERE command IS NOT NULL)
    ),
    unanswered AS (
        SELECT sum(type = 'info' AND command IS NULL)
               + max(sum(type = 'invoke') - sum(type <> 'invoke'), 0) AS count
        FROM answers
    )
    SELECT count(*), min(position)
    FROM unknown
    HAVING count(*) > (SELECT count FROM unanswered)
    """

    def end(self) -> None:
        super().end()
        if self.case.client_records is None:
            return
        if found := self.case.client_records.first(self.unexpected):
            self.report(f"{found[0]} commands that no client sent, the first at {found[1]}")


class SameAnswer(ClientPromise):
    id = "I-10"
    statement = "The same request under the same key always gets the same answer."
    relevant = "SELECT 1 FROM answers WHERE is_final AND key IS NOT NULL"
    contradiction = """
    SELECT max(source_line)
    FROM answers
    WHERE is_final AND key IS NOT NULL
    GROUP BY key, fingerprint
    HAVING min(answer) <> max(answer)
    """
    reason = "{0} has another answer than the same request has elsewhere"


class OneRequest(ClientPromise):
    id = "I-11"
    statement = "A key that stands for one request is refused for another."
    relevant = """
    SELECT 1 FROM answers GROUP BY key HAVING min(fingerprint) <> max(fingerprint)
    """
    contradiction = """
    SELECT max(source_line)
    FROM answers
    WHERE is_final AND key IS NOT NULL
    GROUP BY key
    HAVING min(fingerprint) <> max(fingerprint)
    """
    reason = "{0} was answered under a key that another request was answered under"


class RefusalLeavesNoEvent(ClientPromise):
    id = "I-12"
    statement = "A refused request leaves nothing in the log."
    relevant = "SELECT 1 FROM answers WHERE type = 'fail' AND command IS NOT NULL"
    contradiction = """
    SELECT source_line, position
    FROM answers JOIN facts_command AS logged ON logged.key = command
    WHERE type = 'fail'
      AND command NOT IN (
          SELECT command FROM answers WHERE type IN ('ok', 'info') AND command IS NOT NULL)
    """
    reason = "{0} was refused, but its command is in the log at position {1}"


class EffectKeys(ClientPromise):
    id = "I-27"
    statement = "All attempts of one life of a job share one effect key, unique to that life."
    relevant = "SELECT 1 FROM claims_received"
    # In facts_life the key is a claim, and the value the id and life of its job.
    contradiction = """
    WITH lives AS (
        SELECT value AS life, effect_key, source_line
        FROM claims_received LEFT JOIN facts_life AS logged ON logged.key = claim
    )
    SELECT source_line FROM lives WHERE life IS NULL
    UNION ALL
    SELECT max(source_line) FROM lives GROUP BY life HAVING min(effect_key) <> max(effect_key)
    UNION ALL
    SELECT max(source_line) FROM lives GROUP BY effect_key HAVING min(life) <> max(life)
    """
    reason = "{0} has a claim that is not in the log, or an effect key of another life"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.kinds = () if case.client_records is None else (Job.Claimed,)

    def check(self, step: ReplayedEvent) -> str | None:
        life, claim = f"{step.after.id} {step.after.life}", step.event.claim_id.bytes
        self.case.replay.facts.add("life", claim, life, step.index, step.entry.position)
        return None


class ReadYourWrites(ClientPromise):
    id = "I-37"
    statement = "A read that asks for a position never returns an older state."
    relevant = "SELECT 1 FROM reads"
    contradiction = """
    SELECT source_line, at_least, position_returned
    FROM reads WHERE coalesce(position_returned, 0) < at_least"""
    reason = "{0} asked for position {1}, and got {2}"


INVARIANTS = (
    AcknowledgedIsInLog,
    SameAnswer,
    OneRequest,
    RefusalLeavesNoEvent,
    EffectKeys,
    ReadYourWrites,
)
