"""Progress bar of long commands, shown on a terminal only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar:
    def __init__(self, progress: "Progress", description: str, goal: int) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=goal)
        self._begins = True

    def reach(self, position: int) -> None:
        if self._begins:
            # Work of an earlier run must not count for the speed.
            self._progress.reset(self._task, completed=position)
            self._begins = False
        self._progress.update(self._task, completed=position)


@contextmanager
def bar(description: str, unit: str, goal: int, *, is_shown: bool = True) -> Iterator[ProgressBar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Task as RichTask
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: RichTask) -> Text:
            return Text(f"{task.speed:,.0f} {unit}/s" if task.speed else "")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeRemainingColumn())
    is_shown = is_shown and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
        yield ProgressBar(progress, description, goal)
