"""Bars on standard error while long work runs; nothing where that is no terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from edgemeter.models.progress import Tell, silent


@contextmanager
def progress(of: Literal["steps", "bytes"] = "steps") -> Iterator[Tell]:
    """Yield what shows how far steps, or bytes of a file, are."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console  # noqa: PLC0415 - only where somebody looks
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

    counts = (MofNCompleteColumn(),) if of == "steps" else (DownloadColumn(), TransferSpeedColumn())
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), *counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)

        def tell(step: str, done: int, total: int) -> None:
            bars.update(bar, description=step, completed=done, total=total or None)

        yield tell
