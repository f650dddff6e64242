"""Five invariants implemented again in SQL, independently of the auditor.

Each statement selects violations from a view or table `log`. None folds aggregates: an order's
status or claim is found by the last event that sets it.
"""

VERSIONS = """
SELECT position
FROM (
    SELECT position, version,
           row_number() OVER (PARTITION BY aggregate_id ORDER BY position) AS expected
    FROM log
) AS numbered
WHERE version <> expected
"""

# `receipts` is (command_id, position).
ACKNOWLEDGED = """
SELECT receipts.command_id
FROM receipts
LEFT JOIN (SELECT command_id, max(position) AS last FROM log GROUP BY command_id) AS commands
    USING (command_id)
WHERE receipts.position IS DISTINCT FROM commands.last
"""

ONE_HOLDER = """
SELECT position
FROM (
    SELECT position, topic,
           lag(topic) OVER (PARTITION BY aggregate_id ORDER BY position) AS before
    FROM log
    WHERE topic IN ('order.created', 'order.claimed', 'order.completed', 'order.failed',
                    'order.released')
) AS holding
WHERE topic = 'order.claimed' AND before = 'order.claimed'
"""

# For every event of an order: the last one before it that set its status, the last one that said
# who holds it, and the last one that said whether it is deleted. For a bot, who it holds.
COMPLETED_ONCE = """
WITH marked AS (
    SELECT position, aggregate_id, topic, data,
           max(position) FILTER (WHERE topic IN (
               'order.created', 'order.claimed', 'order.completed', 'order.failed',
               'order.released', 'order.moved_to_dlq', 'order.requeued')) OVER past AS status_at,
           max(position) FILTER (WHERE topic IN (
               'order.created', 'order.deleted', 'order.restored')) OVER past AS deleted_at,
           max(position) FILTER (WHERE topic IN (
               'bot.created', 'bot.claimed', 'bot.completed', 'bot.failed', 'bot.released'))
               OVER past AS holding_at
    FROM log
    WINDOW past AS (PARTITION BY aggregate_id ORDER BY position
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), reported AS (
    SELECT marked.*, status.topic AS status, status.data AS status_data,
           deleted.topic = 'order.deleted' AS is_deleted,
           holding.topic AS holding, holding.data AS holding_data
    FROM marked
    LEFT JOIN log AS status ON status.position = status_at
    LEFT JOIN log AS deleted ON deleted.position = deleted_at
    LEFT JOIN log AS holding ON holding.position = holding_at
)
SELECT position
FROM reported
WHERE status IS NOT NULL AND CASE
    WHEN topic = 'order.restored' THEN NOT is_deleted
    WHEN topic = 'order.created' THEN false
    WHEN is_deleted THEN true
    WHEN topic IN ('order.completed', 'order.failed', 'order.released') THEN
        status <> 'order.claimed' OR data->>'claim_id' <> status_data->>'claim_id'
    WHEN topic IN ('order.claimed', 'order.moved_to_dlq') THEN
        status IN ('order.claimed', 'order.completed', 'order.moved_to_dlq')
    WHEN topic = 'order.requeued' THEN status <> 'order.moved_to_dlq'
    WHEN topic = 'order.deleted' THEN status = 'order.claimed'
    ELSE false
END
OR holding IS NOT NULL AND topic IN ('bot.completed', 'bot.failed', 'bot.released') AND (
    holding <> 'bot.claimed'
    OR (data->>'claim_id', data->>'order_id')
       IS DISTINCT FROM (holding_data->>'claim_id', holding_data->>'order_id'))
"""

# The hash is chained over the positions, one by one.
CURSORS = """
WITH RECURSIVE wanted AS (
    SELECT position, row_number() OVER (ORDER BY position) AS nth
    FROM log
    WHERE topic = ANY(%(topics)s)
      AND position <= (SELECT position FROM followers WHERE name = %(name)s)
), chain AS (
    SELECT 0::bigint AS nth, ''::bytea AS digest
    UNION ALL
    SELECT wanted.nth, sha256(digest || int8send(wanted.position))
    FROM chain JOIN wanted ON wanted.nth = chain.nth + 1
)
SELECT name
FROM followers, (SELECT * FROM chain ORDER BY nth DESC LIMIT 1) AS proof
WHERE name = %(name)s AND (count, followers.digest) IS DISTINCT FROM (nth, proof.digest)
"""
