"""Option types that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

REASON_CHARACTERS_MAX = 500
HOLDER_CHARACTERS_MAX = 200


class Text(click.ParamType[str]):
    """One line of text with a limit, never empty."""

    name = "text"

    def __init__(self, characters_max: int) -> None:
        self._characters_max = characters_max

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not 1 <= len(value) <= self._characters_max or not value.isprintable():
            self.fail(f"give 1 to {self._characters_max} characters on one line.", param, ctx)
        return value


HOLDER = Text(HOLDER_CHARACTERS_MAX)


def reason_option(*, required: bool = False) -> Callable[[F], F]:
    return click.option(
        "--reason",
        required=required,
        type=Text(REASON_CHARACTERS_MAX),
        help="Recorded in the log with the operator's name.",
    )
