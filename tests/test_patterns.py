"""Every pattern of the product ends where its text ends: `$` would let a line break pass.

The patterns are found, not listed, so that the next one is looked at too.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants, _parser
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

import pytest
from msgspec import Meta, ValidationError, convert

import daybook
from daybook.domain.patterns import in_ecma, sentence_in_ecma, whole
from daybook.domain.values import Name
from tests.test_forbidden_code import sources

# Commands of their own, which do their work when they are imported.
STARTED = {"daybook.__main__", "daybook.api.server.background_process"}
Pattern = tuple[str | bytes, int]


def modules() -> Iterator[ModuleType]:
    yield daybook
    for found in pkgutil.walk_packages(daybook.__path__, "daybook."):
        if found.name not in STARTED:
            yield importlib.import_module(found.name)


def patterns_of(value: Any) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield value.pattern, value.flags
    elif isinstance(value, Meta) and value.pattern is not None:
        yield value.pattern, 0
    elif get_origin(value) is not None:
        for part in (*get_args(value), *getattr(value, "__metadata__", ())):
            yield from patterns_of(part)
    elif isinstance(value, dict):
        for part in (*value, *value.values()):
            yield from patterns_of(part)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from patterns_of(part)


def written_patterns() -> Iterator[Pattern]:
    """Patterns that stand in the source where they are used."""
    for _, node in sources():
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            flags = re.MULTILINE if re.search(r"re\.M\b|MULTILINE", ast.unparse(node)) else 0
            yield from ((text, flags) for text in literals(node.args[:1]))
        if isinstance(node, ast.keyword) and node.arg == "pattern":
            yield from ((text, 0) for text in literals([node.value]))


def literals(nodes: list[Any]) -> Iterator[str | bytes]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            # A value that is filled in is checked where it is written.
            parts = [one.value if isinstance(one, ast.Constant) else "x" for one in node.values]
            yield "".join(map(str, parts))


def found_patterns() -> set[Pattern]:
    found: set[Pattern] = set()
    for module in modules():
        for value in vars(module).values():
            found.update(patterns_of(value))
            if isinstance(value, type):
                for inner in vars(value).values():
                    found.update(patterns_of(inner))
                annotations = getattr(value, "__annotations__", {})
                found.update(one for hint in annotations.values() for one in patterns_of(hint))
    return found | set(written_patterns())


def ends_loosely(pattern: str | bytes, flags: int = 0) -> bool:
    return not flags & re.MULTILINE and has_dollar(_parser.parse(pattern, flags & ~re.DEBUG))


def has_dollar(tree: Any) -> bool:
    inner = [part for part in tree if isinstance(part, tuple | list | _parser.SubPattern)]
    return any(
        tuple(part)[:2] == (_constants.AT, _constants.AT_END) or has_dollar(part) for part in inner
    )


def test_no_pattern_of_the_product_lets_a_line_break_pass_at_its_end() -> None:
    found = found_patterns()
    assert len(found) >= 50
    assert [one for one, flags in found if ends_loosely(one, flags)] == []


@pytest.mark.parametrize("pattern", ["a$", "(a$|b)", "(?:x(?:y$))?", rb"\d+$"])
def test_such_a_pattern_would_be_found(pattern: str | bytes) -> None:
    assert ends_loosely(pattern)
    assert not ends_loosely(pattern, re.MULTILINE)
    if isinstance(pattern, str):
        assert {*patterns_of(Annotated[str, Meta(pattern=pattern)] | None)} == {(pattern, 0)}
    assert not ends_loosely(r"a\Z")
    assert not ends_loosely(r"[$]\$")


@pytest.mark.parametrize("text", ["email\n", "\nemail", "email\r\n", "em ail", ""])
def test_a_name_is_a_name_from_its_first_character_to_its_last(text: str) -> None:
    assert convert("email", Name) == "email"
    with pytest.raises(ValidationError):
        convert(text, Name)


def test_a_whole_pattern_is_anchored_and_described_in_javascripts_dialect() -> None:
    anchored = re.compile(whole("a|bc"))
    assert [bool(anchored.search(one)) for one in ("a", "bc", "ac", "bcx", "a\n")] == [
        *(True, True),
        *(False, False, False),
    ]
    assert in_ecma(whole("a|bc")) == "^(?:a|bc)$"
    assert in_ecma(whole("[a-z]+")) == "^[a-z]+$"
    assert in_ecma("plain") == "plain"
    with pytest.raises(ValidationError) as refused:
        convert({"name": "A"}, dict[str, Annotated[str, Meta(pattern=whole(r"[a-z\d]+"))]])
    assert "'^[a-z\\\\d]+$'" in sentence_in_ecma(str(refused.value))
