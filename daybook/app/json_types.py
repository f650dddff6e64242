"""Converts values to JSON and back by their annotations.

msgspec converts standard types, dataclasses and structs. Models of pydantic are recognized by
their methods, so that pydantic need not be installed.
"""

from typing import Any

from msgspec import Raw, convert
from msgspec.json import decode, encode


class Unfit(Exception):
    """The value does not fit the annotation; str(error) is the rest of a sentence that begins with
    the name of the value."""


class JSONType:
    """An annotation, as the type of JSON values."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def encode(self, value: Any) -> Raw:
        """Raises Unfit unless `decode` accepts the result: a value that a worker cannot read is
        refused where it comes from."""
        try:
            content = encode(value, enc_hook=_model_fields)
        except Exception as error:  # The code of a model may raise anything.
            raise Unfit(f"cannot be written as JSON: {_sentence(error)}") from error
        try:
            self._convert(decode(content))
        except Exception as error:
            raise self._unfit(value, error) from error
        return Raw(content)

    def decode(self, value: Any) -> Any:
        """Takes decoded JSON. Raises Unfit if it does not fit the annotation."""
        try:
            return self._convert(value)
        except Exception as error:
            raise self._unfit(value, error) from error

    def _convert(self, value: Any) -> Any:
        return convert(value, self._annotation, str_keys=True, dec_hook=_model)

    def _unfit(self, value: Any, error: Exception) -> Unfit:
        found = type(value).__name__
        return Unfit(f"must be {_name(self._annotation)}, got {found}: {_sentence(error)}")


def _model_fields(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _model(kind: Any, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"{_name(kind)} has no form in JSON")


def _name(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text.removesuffix('.')}."
