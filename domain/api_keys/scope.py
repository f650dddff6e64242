"""Scopes: what a key lets its holder do, and whom a route is for."""

from collections.abc import Iterable
from enum import Flag, auto


class Scope(Flag):
    CLIENT = auto()
    """Creates orders and jobs, and sees its own."""

    VIP = auto()
    """May create VIP orders too; a client, of course."""

    BOT = auto()
    """Claims, completes and fails orders, as one bot."""

    WORKER = auto()
    """Does the jobs of its queues."""

    STAFF = auto()
    """Stands at the counter and in front of the board."""

    AUDITOR = auto()
    """Reads everything and changes nothing."""

    ADMIN = auto()
    """May do everything."""

    CRON = auto()
    """Has jobs run by a call, and nothing else."""

    PUBLIC = auto()
    """No scope of a key: what a route says that is for everybody."""

    SIGNED = auto()
    """No scope of a key: what a route says that looks at a signature or a secret of its own."""


# As keys, events and people write them. These never change.
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
NOBODY = Scope(0)
EVERY_KEY = Scope.CLIENT | Scope.BOT | Scope.WORKER | Scope.STAFF | Scope.AUDITOR | Scope.CRON
# Who answers for the house, and so sees all of it unless a restaurant is named.
BROAD = Scope.STAFF | Scope.AUDITOR | Scope.ADMIN


def scope_of(names: Iterable[str]) -> Scope:
    together = NOBODY
    for name in names:
        together |= SCOPES[name]
    return together | Scope.CLIENT if Scope.VIP in together else together


def names_of(scope: Scope) -> tuple[str, ...]:
    return tuple(name for one, name in NAMES.items() if one in scope)
