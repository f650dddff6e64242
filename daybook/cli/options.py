"""Option types that several commands share."""

import click

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


REASON = Text(REASON_CHARACTERS_MAX)
HOLDER = Text(HOLDER_CHARACTERS_MAX)
