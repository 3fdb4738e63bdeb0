"""Notes, warnings and progress of a command, on standard error."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import click

from edgemeter.agent.base.progress import Tell, bar, no_progress

QUIET = "edgemeter.quiet"  # The key of `--quiet` in click's context.
REDRAWN_S = 0.1  # The shortest time between two drawings of a bar.


def is_quiet() -> bool:
    """Return whether the current command was given `--quiet`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def note(text: str | None) -> None:
    """Print a note, if there is one, on standard error, unless the command was given `--quiet`."""
    if text is not None and not is_quiet():
        click.echo(text, err=True)


def warn(text: str) -> None:
    """Show a warning on standard error, with `--quiet` too."""
    click.echo(text, err=True)


@contextmanager
def passing_note(text: str) -> Iterator[None]:
    """Show a text on a terminal during the block; show nothing elsewhere, and with `--quiet`."""
    is_visible = sys.stderr.isatty() and not is_quiet()
    if is_visible:
        click.echo(text, err=True, nl=False)
    try:
        yield
    finally:
        if is_visible:
            click.echo("\r\x1b[K", err=True, nl=False)


@contextmanager
def progress_bar(of: Literal["steps", "bytes"] = "steps") -> Iterator[Tell]:
    """Yield a progress bar of steps, or of bytes of a file, on standard error.

    It is invisible unless that is a terminal. The bar has its own file descriptor: while a
    converter is at work, its output is redirected.
    """
    if not sys.stderr.isatty() or is_quiet():
        yield no_progress
        return
    from edgemeter.agent.base.console import Console
    from edgemeter.agent.base.live_lines import LiveLines
    from edgemeter.agent.base.number_text import duration, size

    begun_s, drawn_s = time.monotonic(), -REDRAWN_S
    amount = str if of == "steps" else size
    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal,
        LiveLines(Console(terminal)) as live,
    ):

        def report(step: str, completed: int, total: int) -> None:
            nonlocal drawn_s
            now_s = time.monotonic()
            if now_s - drawn_s < REDRAWN_S and completed != total:
                return
            drawn_s = now_s
            remaining = (
                f", {duration((now_s - begun_s) * (total - completed) / completed)} left"
                if 0 < completed < total
                else ""
            )
            parts = (
                f" {bar(completed / total)} {amount(completed)} of {amount(total)}{remaining}"
                if total
                else ""
            )
            live.draw([f"{step}{parts}"])

        yield report
