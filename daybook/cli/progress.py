"""The bar that shows how far a long command is; on a terminal only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar:
    """How far of how far, how fast, and for how long still."""

    def __init__(self, progress: "Progress", what: str, goal: int) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=goal)
        self._begins = True

    def reach(self, place: int) -> None:
        if self._begins:
            # Else what was done before would count as done at once.
            self._progress.reset(self._task, completed=place)
            self._begins = False
        self._progress.update(self._task, completed=place)


@contextmanager
def bar(what: str, unit: str, goal: int, *, is_shown: bool = True) -> Iterator[ProgressBar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Task as Shown
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Shown) -> Text:
            return Text(f"{task.speed:,.0f} {unit}/s" if task.speed else "")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeRemainingColumn())
    is_shown = is_shown and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
        yield ProgressBar(progress, what, goal)
