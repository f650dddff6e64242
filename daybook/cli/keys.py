"""`daybook keys`: manages API keys. A key is shown once; only its digest is stored."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from daybook.cli.options import HOLDER, REASON
from daybook.cli.terminal import echo, echo_json, say

# Imported on use, so that help and usage errors appear at once.
if TYPE_CHECKING:
    from daybook.api.keys.key_admin import ApiKeyAdmin
    from daybook.cli.main import CliContext
    from daybook.domain.api_keys.key import Key

SCOPE_NAMES = ("client", "client:vip", "bot", "worker", "staff", "auditor", "admin", "cron")
INSTANT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z"])
OVERLAP_HOURS = 24.0
NOTE = "Store the key now: it cannot be shown again."


@click.group("keys")
def keys_group() -> None:
    """Create, list, rotate and revoke API keys."""


@keys_group.command("create")
@click.option("--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPE_NAMES))
@click.option("--for", "holder", required=True, type=HOLDER, help="The holder, in words.")
@click.option("--restaurant", help="See and create orders of this restaurant only.")
@click.option("--bot", type=click.UUID, help="The bot as which it acts, with the scope bot.")
@click.option("--queue", "queues", multiple=True, help="Only jobs of this queue; * for all.")
@click.option("--expires", type=INSTANT, help="Expiry, as 2027-01-31 or with a time of day.")
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
    """Create a key and show it once."""
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
    _run(context, lambda admin: admin.submit(issue))
    _show(text.write())


@keys_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each key.")
@click.pass_obj
def list_command(context: "CliContext", as_json: bool) -> None:
    """List all keys, including revoked ones."""
    for key in _run(context, lambda admin: admin.keys()):
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
    help="How long the previous secret stays valid.",
)
@click.option("--expires", type=INSTANT, help="New expiry; by default it does not change.")
@click.option("--reason", type=REASON, help="Why; recorded in the log with who did it.")
@click.pass_obj
def rotate_command(
    context: "CliContext",
    name: str,
    overlap_hours: float,
    expires: datetime | None,
    reason: str | None,
) -> None:
    """Replace the secret of a key and show it once. The previous one stays valid for a while."""
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

    _show(_run(context, rotate))


@keys_group.command("revoke")
@click.argument("name")
@click.option(
    "--reason", required=True, type=REASON, help="Why; recorded in the log with who did it."
)
@click.pass_obj
def revoke_command(context: "CliContext", name: str, reason: str) -> None:
    """Revoke a key. All processes refuse it within 1 s."""
    from daybook.domain.api_keys.commands import RevokeKey

    _run(context, lambda admin: admin.submit(RevokeKey(name=name, reason=reason)))
    echo(f"Key {name} is revoked.")


def _run(context: "CliContext", action: Callable[["ApiKeyAdmin"], Coroutine[Any, Any, Any]]) -> Any:
    from daybook.api.keys.key_admin import ApiKeyAdmin, operator
    from daybook.api.server.database import prepare
    from daybook.domain.errors import Refusal
    from daybook.eventlog.errors import SetupError, UnavailableError

    async def run(conninfo: str) -> Any:
        async with ApiKeyAdmin(conninfo, actor=operator()) as admin:
            return await action(admin)

    with context.conninfo(say) as conninfo:
        prepare(conninfo)
        try:
            return asyncio.run(run(conninfo))
        except (Refusal, UnavailableError) as error:
            raise SetupError(str(error)) from error


def _show(key: str) -> None:
    """Writes only the key to stdout, for scripts."""
    echo(key)
    if sys.stdout.isatty():
        say(NOTE)


def _utc(moment: datetime | None) -> datetime | None:
    """A date without a time zone is UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def _line(key: "Key") -> str:
    bound = [key.binding.restaurant, key.binding.bot_id, *key.binding.queues]
    fields = [
        key.name,
        f"{','.join(key.scopes):<18}",
        "revoked" if key.revoked_at else "good   ",
        f"until {key.expires_at:%Y-%m-%d}" if key.expires_at else "for ever        ",
        key.holder,
        *(f"[{one}]" for one in bound if one),
    ]
    return "  ".join(fields)


def _json(key: "Key") -> str:
    import orjson
    from msgspec import to_builtins

    members = to_builtins(key)
    hidden = ("digest", "earlier_digest", "id")
    return orjson.dumps({name: members[name] for name in members if name not in hidden}).decode()
