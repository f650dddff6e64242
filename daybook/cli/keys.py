"""`daybook keys`: who is let in. A key is shown once, when it is made, and kept by nobody here."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from daybook.cli.options import HOLDER, REASON
from daybook.cli.terminal import echo, echo_json, say

# What a command needs is imported when it runs, so that help and mistakes are answered at once.
if TYPE_CHECKING:
    from daybook.api.keys.key_admin import ApiKeyAdmin
    from daybook.cli.main import CliContext
    from daybook.domain.api_keys.key import Key

SCOPE_NAMES = ("client", "client:vip", "bot", "worker", "staff", "auditor", "admin", "cron")
INSTANT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"])
OVERLAP_HOURS = 24.0
NOTE = "Keep it well: nobody can show it again."


@click.group("keys")
def keys_group() -> None:
    """Make keys, list them, give them another secret, and end them."""


@keys_group.command("create")
@click.option("--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPE_NAMES))
@click.option("--for", "holder", required=True, type=HOLDER, help="Whom it is for, in words.")
@click.option("--restaurant", help="See and create orders of this restaurant only.")
@click.option("--bot", type=click.UUID, help="The bot as which it acts, with the scope bot.")
@click.option("--queue", "queues", multiple=True, help="Only jobs of this queue; * for all.")
@click.option("--expires", type=INSTANT, help="When it ends, as 2027-01-31 or with a time of day.")
@click.option("--reason", type=REASON, help="Why; recorded in the log with who did it.")
@click.pass_obj
def create_command(
    context: "CliContext",
    /,
    scopes: tuple[str, ...],
    restaurant: str | None,
    bot: Any,
    queues: tuple[str, ...],
    expires: datetime | None,
    holder: str,
    reason: str | None,
) -> None:
    """Make a key, and show it this once."""
    from daybook.api.keys.key_format import new_key_text, new_name
    from daybook.domain.api_keys.commands import IssueKey
    from daybook.domain.api_keys.key import Binding
    from daybook.domain.api_keys.scope import names_of, scope_of

    text = new_key_text(names_of(scope_of(scopes))[0], new_name())
    issue = IssueKey(
        name=text.name,
        scopes=scopes,
        binding=Binding(restaurant=restaurant, bot_id=bot, queues=queues),
        digest=text.digest.hex(),
        expires_at=_utc(expires),
        holder=holder,
        reason=reason,
    )
    _keep(context, lambda smith: smith.submit(issue))
    _show(text.write())


@keys_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each key.")
@click.pass_obj
def list_command(context: "CliContext", as_json: bool) -> None:
    """List all keys, those that are revoked too."""
    for key in _keep(context, lambda smith: smith.keys()):
        if as_json:
            echo_json(_json(key))
        else:
            echo(_line(key))


@keys_group.command("rotate")
@click.argument("name")
@click.option(
    "--overlap-hours",
    default=OVERLAP_HOURS,
    show_default=True,
    type=click.FloatRange(0, 24 * 366),
    help="How long the secret before is good.",
)
@click.option("--expires", type=INSTANT, help="When it ends, if not when it did.")
@click.option("--reason", type=REASON, help="Why; recorded in the log with who did it.")
@click.pass_obj
def rotate_command(
    context: "CliContext",
    name: str,
    overlap_hours: float,
    expires: datetime | None,
    reason: str | None,
) -> None:
    """Give a key another secret, and show it this once. The one before is good for a while."""
    from msgspec import UNSET

    from daybook.api.keys.key_format import new_key_text
    from daybook.domain.api_keys.commands import RotateKey

    async def rotate(admin: "ApiKeyAdmin") -> str:
        known = {key.name: key for key in await admin.keys()}
        first_scope = known[name].scopes[0] if name in known else SCOPE_NAMES[0]
        text = new_key_text(first_scope, name)
        rotation = RotateKey(
            name=name,
            digest=text.digest.hex(),
            overlap_seconds=overlap_hours * 3600,
            expires_at=UNSET if expires is None else _utc(expires),
            reason=reason,
        )
        await admin.submit(rotation)
        return text.write()

    _show(_keep(context, rotate))


@keys_group.command("revoke")
@click.argument("name")
@click.option(
    "--reason", required=True, type=REASON, help="Why; recorded in the log with who did it."
)
@click.pass_obj
def revoke_command(context: "CliContext", name: str, reason: str) -> None:
    """End a key: within a second it opens nothing, anywhere."""
    from daybook.domain.api_keys.commands import RevokeKey

    _keep(context, lambda smith: smith.submit(RevokeKey(name=name, reason=reason)))
    echo(f"Key {name} is revoked.")


def _keep(context: "CliContext", deed: Callable[["ApiKeyAdmin"], Coroutine[Any, Any, Any]]) -> Any:
    """Does something with the keys of the choice's database."""
    from daybook.api.keys.key_admin import ApiKeyAdmin, operator
    from daybook.api.server.database import prepare
    from daybook.domain.errors import Refusal
    from daybook.eventlog.errors import SetupError, UnavailableError

    async def keep(conninfo: str) -> Any:
        async with ApiKeyAdmin(conninfo, actor=operator()) as smith:
            return await deed(smith)

    with context.conninfo(say) as conninfo:
        prepare(conninfo)
        try:
            return asyncio.run(keep(conninfo))
        except (Refusal, UnavailableError) as error:
            raise SetupError(str(error)) from error


def _show(key: str) -> None:
    """The key alone goes where scripts look for it."""
    echo(key)
    if sys.stdout.isatty():
        say(NOTE)


def _utc(moment: datetime | None) -> datetime | None:
    """A day without a time of day is one of UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def _line(key: "Key") -> str:
    bound = [key.binding.restaurant, key.binding.bot_id, *key.binding.queues]
    said = [
        key.name,
        f"{','.join(key.scopes):<18}",
        "revoked" if key.revoked_at else "good   ",
        f"until {key.expires_at:%Y-%m-%d}" if key.expires_at else "for ever        ",
        key.holder,
        *(f"[{one}]" for one in bound if one),
    ]
    return "  ".join(said)


def _json(key: "Key") -> str:
    import orjson
    from msgspec import to_builtins

    told = to_builtins(key)
    hidden = ("digest", "earlier_digest", "id")
    return orjson.dumps({name: told[name] for name in told if name not in hidden}).decode()
