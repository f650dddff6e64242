"""Reads query parameters into a typed struct; each must be known, given once, and valid.

The same struct describes them in the OpenAPI document.
"""

from collections.abc import Container
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct, ValidationError, convert, inspect
from msgspec.json import encode
from msgspec.structs import FieldInfo, fields

from daybook.api.http.request_reader import bad_request
from daybook.api.settings.constraint_text import describe_constraint

PARAMETERS_MAX = 20


class Parameters(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all query parameters. Each has a default."""


class NoParameters(Parameters, frozen=True):
    """For endpoints without query parameters."""


P = TypeVar("P", bound=Parameters)


def read_parameters(query: bytes, kind: type[P]) -> P:
    if not query:
        return kind()
    known = {field.encode_name: field for field in fields(kind)}
    given = _read_pairs(query, known)
    values = {known[name].name: _read_value(known[name], text) for name, text in given.items()}
    return kind(**values)


def _read_pairs(query: bytes, known: Container[str]) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"), True, errors="strict", max_num_fields=PARAMETERS_MAX
        )
    except UnicodeError:
        raise bad_request("bad_encoding", "The query is not percent-encoded UTF-8.") from None
    except ValueError:
        raise bad_request("unknown_parameter", "The query has too many parameters.") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise bad_request("unknown_parameter", f"The parameter {name[:80]!r} is unknown.")
        if name in parameters:
            raise bad_request("duplicate_parameter", f"The parameter {name} is given twice.")
        if "\0" in value:
            # PostgreSQL cannot store it in a text.
            raise bad_request("bad_parameter", f"The parameter {name} contains a NUL character.")
        parameters[name] = value
    return parameters


def _read_value(parameter: FieldInfo, text: str) -> Any:
    value = read_text(text, parameter.type)
    if value is None:
        wanted = describe_constraint(inspect.type_info(parameter.type))
        sentence = f"The parameter {parameter.encode_name} must be {wanted}."
        raise bad_request("bad_parameter", sentence)
    return value


def read_text(text: str, kind: Any) -> Any:
    """Returns the value, or None if the text is not its canonical form: `01` and `null` are not
    accepted. A number with fractions may have any form of JSON, such as `5` or `5.0`."""
    try:
        value = convert(text, kind, strict=False)
    except ValidationError:
        return None
    if isinstance(value, float):
        return value
    written = value if isinstance(value, str) else encode(value).decode()
    return value if written == text else None
