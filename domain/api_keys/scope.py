"""Scopes of API keys and routes."""

from collections.abc import Iterable
from enum import Flag, auto


class Scope(Flag):
    CLIENT = auto()  # Creates orders and jobs, and sees its own
    VIP = auto()  # A client that may also create VIP orders
    BOT = auto()  # Claims, completes and fails orders as one bot
    WORKER = auto()  # Claims and finishes jobs of its queues
    STAFF = auto()  # Runs the board and the waitlist
    AUDITOR = auto()  # Reads everything, changes nothing
    ADMIN = auto()  # Full access
    CRON = auto()  # Runs jobs by a call, and nothing else
    PUBLIC = auto()  # For routes only: no key needed
    SIGNED = auto()  # For routes only: checks a signature or secret of its own


# As stored in keys and events; these names never change.
NAMES: dict[Scope, str] = {
    Scope.CLIENT: "client",
    Scope.VIP: "client:vip",
    Scope.BOT: "bot",
    Scope.WORKER: "worker",
    Scope.STAFF: "staff",
    Scope.AUDITOR: "auditor",
    Scope.ADMIN: "admin",
    Scope.CRON: "cron",
}
SCOPES = {name: scope for scope, name in NAMES.items()}
NO_SCOPE = Scope(0)
EVERY_KEY = Scope.CLIENT | Scope.BOT | Scope.WORKER | Scope.STAFF | Scope.AUDITOR | Scope.CRON
# Scopes that see all restaurants, unless the key is bound to one.
BROAD = Scope.STAFF | Scope.AUDITOR | Scope.ADMIN


def scope_of(names: Iterable[str]) -> Scope:
    scope = NO_SCOPE
    for name in names:
        scope |= SCOPES[name]
    return scope | Scope.CLIENT if Scope.VIP in scope else scope


def names_of(scope: Scope) -> tuple[str, ...]:
    return tuple(name for one, name in NAMES.items() if one in scope)
