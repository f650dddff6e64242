"""What clients were told: acknowledged writes are in the log once, and answers do not change."""

from audit.invariant import Invariant
from audit.world import Step
from domain.job import Job


class Told(Invariant):
    """Judges at the end, by a query for what contradicts it; the query for whether there was
    anything to judge is `relevant`."""

    relevant: str
    contradiction: str
    reason: str

    def end(self) -> None:
        testimony = self.case.testimony
        if testimony is None:
            return
        self.seen = testimony.one(self.relevant) is not None
        if found := testimony.one(self.contradiction):
            self.accuse(self.reason.format(*found))


# The last event of each command.
_LAST = """
(SELECT key AS command, max(position) AS position FROM facts WHERE kind = 'command' GROUP BY key)
AS logged
"""


class Acknowledged(Told):
    id = "I-09"
    statement = "Every acknowledged write is in the log, once, where its receipt says."
    relevant = "SELECT 1 FROM receipts"
    contradiction = f"""
    SELECT said, receipts.position, logged.position
    FROM receipts LEFT JOIN {_LAST} USING (command)
    WHERE receipts.position IS NOT logged.position
    """
    reason = "{0} names position {1}, but the last event of its command is at {2}"

    def end(self) -> None:
        super().end()
        if self.case.testimony is not None and self.violation is None:
            self._find_unexpected()

    def _find_unexpected(self) -> None:
        """With a history, which tells of all clients: what was done that nobody asked for."""
        assert self.case.testimony is not None
        found = self.case.testimony.one(UNEXPECTED)
        if found and found[0] > found[1]:
            self.accuse(
                f"{found[0]} commands are in the log that no client was told of, and only "
                f"{found[1]} requests ended without an answer; the first is at {found[2]}",
                position=found[2],
            )


# Between the first and the last position that the history knows of, since it may not be the whole.
UNEXPECTED = """
WITH span AS (SELECT min(position) AS since, max(position) AS until FROM receipts),
unknown AS (
    SELECT position
    FROM facts, span
    WHERE kind = 'command' AND mark LIKE 'open %' AND position BETWEEN since AND until
      AND key NOT IN (SELECT command FROM answers WHERE command IS NOT NULL)
)
SELECT (SELECT count(*) FROM unknown),
       sum(type = 'info' AND command IS NULL) + max(sum(type = 'invoke') - sum(type <> 'invoke'), 0),
       (SELECT min(position) FROM unknown)
FROM answers
HAVING count(*) > 0
"""


class SameAnswer(Told):
    id = "I-10"
    statement = "The same request under the same key always gets the same answer."
    relevant = "SELECT 1 FROM answers WHERE is_stored AND key IS NOT NULL"
    contradiction = """
    SELECT max(said)
    FROM answers
    WHERE is_stored AND key IS NOT NULL
    GROUP BY key, fingerprint
    HAVING min(answer) <> max(answer)
    """
    reason = "{0} has another answer than the same request before"


class OneRequest(Told):
    id = "I-11"
    statement = "A key that stands for one request is refused for another."
    relevant = """
    SELECT 1 FROM answers WHERE key IS NOT NULL
    GROUP BY key HAVING min(fingerprint) <> max(fingerprint)
    """
    contradiction = """
    SELECT max(said)
    FROM answers
    WHERE is_stored AND key IS NOT NULL
    GROUP BY key
    HAVING min(fingerprint) <> max(fingerprint)
    """
    reason = "{0} was answered under the key of another request"


class NothingRefused(Told):
    id = "I-12"
    statement = "What was refused has left nothing in the log."
    relevant = "SELECT 1 FROM answers WHERE type = 'fail' AND command IS NOT NULL"
    contradiction = f"""
    SELECT said, logged.position
    FROM answers JOIN {_LAST} USING (command)
    WHERE type = 'fail'
      AND command NOT IN (
          SELECT command FROM answers WHERE type IN ('ok', 'info') AND command IS NOT NULL)
    """
    reason = "{0} was refused, but its command is in the log up to position {1}"


class EffectKeys(Told):
    id = "I-27"
    statement = "All attempts of one life of a job are given the same key for their effects."
    kinds = (Job.Claimed,)
    relevant = "SELECT 1 FROM handed"
    # `mark` is the life in which the log has that claim.
    contradiction = """
    SELECT max(said)
    FROM handed LEFT JOIN facts ON kind = 'life' AND key = claim
    GROUP BY job, mark
    HAVING mark IS NULL OR min(effect_key) <> max(effect_key)
    UNION ALL
    SELECT max(said)
    FROM handed JOIN facts ON kind = 'life' AND key = claim
    GROUP BY effect_key
    HAVING min(mark) <> max(mark)
    """
    reason = "{0} has a key that another attempt of the same life was not given"
    is_picky = True

    def see(self, step: Step) -> str | None:
        if self.case.testimony is not None:
            life = f"{step.entry.aggregate} {step.after.life}"
            key, place = step.event.claim_id.bytes, step.place
            self.case.world.memory.note("life", key, life, place, step.entry.position)
        return None


class ReadYourWrites(Told):
    id = "I-37"
    statement = "A read that asks for a position is never shown an older state."
    relevant = "SELECT 1 FROM reads"
    contradiction = "SELECT said, at_least, shown FROM reads WHERE shown IS NULL OR shown < at_least"
    reason = "{0} asked for position {1}, and was shown {2}"


INVARIANTS = (Acknowledged, SameAnswer, OneRequest, NothingRefused, EffectKeys, ReadYourWrites)
