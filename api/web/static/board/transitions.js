/**
 * How each event changes the JSON of an order or a bot. Derived from `evolve` in `domain/orders/`
 * by `tests/support/board_transitions.py`: run it instead of editing this file.
 *
 * Each member that changes has an operation: set a value, copy a member of the event's data, add a
 * number, or append an item (its operation, the characters kept of it, the items kept). It may
 * depend on a member of the data (`by`), or on whether a member of the state is truthy (`if`, with
 * the operations for yes and no).
 */

/** Pending orders are sorted by rank, then by number. */
export const ORDER_RANKS = {"VIP": 0, "NORMAL": 1};

/** @type {Record<string, Record<string, any[]>>} */
export const TRANSITIONS = {
  "order.created": {
    id: ["copy", "orderId"], orderNumber: ["copy", "number"], type: ["copy", "kind"], status: ["set", "PENDING"],
    userId: ["copy", "userId"], botId: ["set", null], claimId: ["set", null], attempts: ["set", 0],
    createdAt: ["copy", "at"], processingStartedAt: ["set", null], dueAt: ["set", null],
    completedAt: ["set", null], updatedAt: ["copy", "at"], deletedAt: ["set", null], version: ["set", 1],
  },
  "order.claimed": {
    status: ["set", "PROCESSING"], botId: ["copy", "botId"], claimId: ["copy", "claimId"],
    attempts: ["copy", "attempt"], processingStartedAt: ["copy", "at"], dueAt: ["copy", "dueAt"],
    updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "order.completed": {
    status: ["set", "COMPLETE"], claimId: ["copy", "claimId"], completedAt: ["copy", "at"],
    updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "order.failed": {
    status: ["set", "PENDING"], botId: ["set", null], claimId: ["set", null], processingStartedAt: ["set", null],
    dueAt: ["set", null], updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "order.released": {
    status: ["set", "PENDING"], botId: ["set", null], claimId: ["set", null],
    attempts: ["by", "reason", {"bot_deleted": ["add", -1], "expired": ["keep"], "order_deleted": ["add", -1], "stopped": ["add", -1]}],
    processingStartedAt: ["set", null], dueAt: ["set", null], updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "order.moved_to_dlq": { status: ["set", "DEAD"], version: ["add", 1] },
  "order.requeued": { status: ["set", "PENDING"], attempts: ["set", 0], updatedAt: ["copy", "at"], version: ["add", 1] },
  "order.deleted": { updatedAt: ["copy", "at"], deletedAt: ["copy", "at"], version: ["add", 1] },
  "order.restored": { updatedAt: ["copy", "at"], deletedAt: ["set", null], version: ["add", 1] },
  "bot.created": {
    id: ["copy", "botId"], status: ["set", "IDLE"], currentOrderId: ["set", null],
    autoClaim: ["copy", "autoClaim"], completion: ["copy", "completion"], failuresMax: ["copy", "failuresMax"],
    failures: ["set", 0], errors: ["set", []], deadAt: ["set", null], createdAt: ["copy", "at"],
    updatedAt: ["copy", "at"], deletedAt: ["set", null], version: ["set", 1],
  },
  "bot.configured": {
    failuresMax: ["copy", "failuresMax"], failures: ["if", "deadAt", ["keep"], ["set", 0]],
    errors: ["if", "deadAt", ["keep"], ["set", []]], updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "bot.claimed": {
    status: ["set", "PROCESSING"], currentOrderId: ["copy", "orderId"], updatedAt: ["copy", "at"],
    version: ["add", 1],
  },
  "bot.completed": {
    status: ["set", "IDLE"], currentOrderId: ["set", null], failures: ["set", 0], errors: ["set", []],
    updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "bot.failed": {
    status: ["set", "IDLE"], currentOrderId: ["set", null],
    failures: ["if", "failuresMax", ["add", 1], ["keep"]],
    errors: ["if", "failuresMax", ["append", ["copy", "error"], 500, 10], ["keep"]], updatedAt: ["copy", "at"],
    version: ["add", 1],
  },
  "bot.released": {
    status: ["set", "IDLE"], currentOrderId: ["set", null],
    failures: ["by", "reason", {"bot_deleted": ["keep"], "expired": ["if", "failuresMax", ["add", 1], ["keep"]], "order_deleted": ["keep"], "stopped": ["keep"]}],
    errors: ["by", "reason", {"bot_deleted": ["keep"], "expired": ["if", "failuresMax", ["append", ["set", "no report before the claim was due"], 500, 10], ["keep"]], "order_deleted": ["keep"], "stopped": ["keep"]}],
    updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "bot.moved_to_dlq": {
    status: ["set", "DEAD"], failures: ["copy", "failures"], errors: ["copy", "errors"], deadAt: ["copy", "at"],
    version: ["add", 1],
  },
  "bot.restored": {
    status: ["set", "IDLE"], failures: ["set", 0], errors: ["set", []], deadAt: ["set", null],
    updatedAt: ["copy", "at"], version: ["add", 1],
  },
  "bot.deleted": { updatedAt: ["copy", "at"], deletedAt: ["copy", "at"], version: ["add", 1] },
};
