"""The call of a job's function as JSON: arguments and result."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, get_type_hints

from msgspec import Raw

from daybook.app.json_types import JSONType, Unfit
from daybook.errors import BadSetup, BadValue, DaybookError
from daybook.worker.outcomes import Fail

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CallFormat:
    """The payload is an object of the given arguments by parameter name, without a wrapper. Clients
    in other languages and schedules can write it, and operators can read it. Omitted arguments are
    not stored: the worker's function has the defaults, which need no form in JSON."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind in VARIABLE:
                raise BadSetup(
                    f"{name}: the parameter `{parameter}` has no name in the payload: "
                    "take a list or a dict instead."
                )

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Raw]:
        """Raises BadValue for arguments that the worker could not pass on."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadValue(f"{self._name}: {error}.", code="bad_argument") from error
        payload = {}
        for name, value in given.items():
            try:
                payload[name] = self._types[name].encode(value)
            except Unfit as error:
                sentence = f"{self._name}: the argument `{name}` {error}"
                raise BadValue(sentence, code="bad_argument") from error
        return payload

    def arguments(self, payload: Any) -> inspect.BoundArguments:
        """Raises Fail if the stored payload does not fit the function, because a retry would not
        change that."""
        if payload is None:
            payload = {}
        if not isinstance(payload, dict):
            raise Fail(f"{self._name}: the payload must be an object by parameter name.")
        parameters = self._signature.parameters
        if unknown := payload.keys() - parameters.keys():
            raise Fail(f"{self._name}: there is no parameter `{min(unknown)}`.")
        bound = inspect.BoundArguments(self._signature, OrderedDict())
        for name, parameter in parameters.items():
            if name in payload:
                try:
                    bound.arguments[name] = self._types[name].decode(payload[name])
                except Unfit as error:
                    raise Fail(f"{self._name}: the argument `{name}` {error}") from error
            elif parameter.default is parameter.empty:
                raise Fail(f"{self._name}: the argument `{name}` is missing.")
        bound.apply_defaults()
        return bound

    def encode_result(self, value: Any) -> Raw | None:
        """Raises Fail if the value does not fit the return annotation."""
        try:
            content = self._types["return"].encode(value)
        except Unfit as error:
            raise Fail(f"{self._name}: the result {error}") from error
        return None if value is None else content

    def decode_result(self, value: Any) -> Any:
        try:
            return self._types["return"].decode(value)
        except Unfit as error:
            sentence = f"{self._name}: the stored result {error}"
            raise DaybookError(sentence, code="bad_result") from error

    @cached_property
    def _types(self) -> dict[str, JSONType]:
        """By parameter name, and `return`. Resolved on first use, because an annotation may name a
        class that its module defines later."""
        try:
            hints = get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise BadSetup(f"{self._name}: an annotation cannot be resolved: {error}.") from error
        names = (*self._signature.parameters, "return")
        return {name: JSONType(hints.get(name, Any)) for name in names}
