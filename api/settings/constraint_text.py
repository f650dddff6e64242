"""Describes the values that a type allows, for error messages."""

from msgspec import inspect

from daybook.domain.patterns import in_ecma


def describe_constraint(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return describe_constraint(kind.type)
        case inspect.UnionType():
            return describe_constraint(kind.types[0])
        case inspect.IntType():
            return f"a whole number from {kind.ge} to {kind.le}"
        case inspect.FloatType(ge=int() | float(), le=int() | float()):
            return f"a number from {kind.ge:g} to {kind.le:g}"
        case inspect.FloatType():
            return f"a number over {kind.gt} and up to {kind.le}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(max_length=int()):
            form = f" of the form {in_ecma(kind.pattern)}" if kind.pattern else ""
            return f"a text of {kind.min_length or 0} to {kind.max_length} characters{form}"
        case inspect.EnumType():
            return "one of " + ", ".join(kind.cls)
        case inspect.LiteralType():
            return " or ".join(map(repr, kind.values))
        case _:
            raise AssertionError(f"{kind} accepts every text")
