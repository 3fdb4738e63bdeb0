"""Progress of long work on a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from edgemeter.models.progress import Tell, silent


@contextmanager
def shown(of: Literal["steps", "bytes"] = "steps") -> Iterator[Tell]:
    """Yield what shows how far steps, or bytes of a file, are, on standard error when it is a terminal; nothing is shown elsewhere.

    The bar keeps its own way to the terminal: while a converter is at work, what it prints is led elsewhere.
    """
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console  # noqa: PLC0415 - needed on a terminal only
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    count = MofNCompleteColumn() if of == "steps" else DownloadColumn()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), count, TimeRemainingColumn())
    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal,
        Progress(*columns, console=Console(file=terminal), transient=True) as bars,
    ):
        bar = bars.add_task("", total=None)

        def tell(step: str, done: int, total: int) -> None:
            bars.update(bar, description=step, completed=done, total=total or None)

        yield tell
