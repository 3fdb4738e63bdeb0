"""What a digest is doing, on a terminal: the first look at a large ledger takes minutes."""

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import TaskID

from edgemeter.collector.digest.refresh import Progress


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Show progress on standard error when that is a terminal."""
    console = Console(stderr=True)
    with Bars(console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total)

        yield tell
