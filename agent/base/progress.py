"""Progress of long work on a terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import click

Tell = Callable[[str, int, int], None]  # Called with the step, the completed amount, and the total.
# The key of `--quiet` in click's context, and its value for calls from Python.
QUIET = "edgemeter.quiet"
CALLED = "called"
REDRAWN_S = 0.1  # The shortest time between two drawings of a bar.


def is_quiet() -> bool:
    """Return whether the current command was given `--quiet`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


@contextmanager
def quietly() -> Iterator[None]:
    """Show no progress and no notes in the block, as with `--quiet`, for calls from Python."""
    with click.Context(click.Command("edgemeter")) as context:
        context.meta[QUIET] = CALLED
        yield


def note(text: str | None) -> None:
    """Print a note, if there is one, on standard error, unless the command was given `--quiet`."""
    if text is not None and not is_quiet():
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


def no_progress(step: str, completed: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def progress_bar(of: Literal["steps", "bytes"] = "steps") -> Iterator[Tell]:
    """Yield a progress bar of steps, or of bytes of a file, on standard error; it is invisible unless that is a terminal.

    The bar has its own file descriptor: while a converter is at work, its output is redirected.
    """
    if not sys.stderr.isatty() or is_quiet():
        yield no_progress
        return
    from edgemeter.agent.base.console import Console  # noqa: PLC0415 - needed on a terminal only
    from edgemeter.agent.base.figures import duration, size  # noqa: PLC0415
    from edgemeter.agent.base.live_lines import LiveLines  # noqa: PLC0415

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


def bar(ratio: float, width: int = 24) -> str:
    """Return the share (0..1) of finished work as a bar."""
    return f"[{'=' * round(width * min(1.0, ratio)):{width}}]"


def warn(text: str) -> None:
    """Show a warning on standard error, with `--quiet` too, and in the log for calls from Python."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(QUIET) == CALLED:
        import logging  # noqa: PLC0415 - no command needs it before its first words

        logging.getLogger(__name__).warning("%s", text)
    else:
        click.echo(text, err=True)
