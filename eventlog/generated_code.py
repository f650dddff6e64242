"""Functions compiled from declarations, for conversions that thousands of rows or jobs pass."""

from typing import Any


class GeneratedCode:
    """Compiles functions; values that they use are named in their global namespace."""

    def __init__(self, **names: Any) -> None:
        self.sources: list[str] = []
        self._names = names

    def name(self, value: Any, given: str | None = None) -> str:
        for name, known in self._names.items():
            if known is value:
                return name
        name = "_" + (given or getattr(value, "__name__", "value").strip("<>_"))
        if name in self._names:
            name = f"{name}_{len(self._names)}"
        self._names[name] = value
        return name

    def compile(self, source: str) -> Any:
        self.sources.append(source)
        scope = dict(self._names)
        exec(source, scope)  # noqa: S102 (built from declarations in this repository, no input)
        return scope[source.removeprefix("def ").partition("(")[0]]
