"""Text and tables on a terminal, and the wait for the signal that ends a service."""

import signal
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from edgemeter.agent.base.figures import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def wide_console() -> "Console":
    """Return the console of standard output; a file or another program gets lines that are not cut at 80 columns."""
    from rich.console import Console  # noqa: PLC0415 - rich takes long to import

    console = Console()
    return console if console.is_terminal else Console(width=400)


def plain_table(*headings: str, right: Collection[str] = (), overflow: Literal["fold", "ellipsis"] = "ellipsis") -> "Table":
    """Return a table of a header line and rows, without frames, with these columns; those under `right` stand right."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow=overflow)
    return table


def safe_text(text: str, console: "Console", style: str = "") -> "Text":
    """Return text that this console can write, and that is not searched for markup: what a device sent cannot colour the terminal."""
    from rich.text import Text  # noqa: PLC0415

    return Text(writable(text, console), style)


def writable(text: str, console: "Console") -> str:
    """Return text without what this console cannot write or would take for an order."""
    plain = printable(text)
    if plain.isascii():
        return plain
    encoding = console.encoding
    # As rich tells whether a console knows ASCII only.
    return (plain if encoding.startswith("utf") else plain.replace("±", "+-")).encode(encoding, "replace").decode(encoding)


def print_text(console: "Console", text: str, style: str = "") -> None:
    """Print a line, which the terminal may fold."""
    console.print(safe_text(text, console, style), soft_wrap=True)


def print_lines(console: "Console", lines: Iterable[str]) -> None:
    """Print lines, each as `print_text` does, at once."""
    from rich.text import Text  # noqa: PLC0415

    console.print(Text("\n".join(writable(line, console) for line in lines)), soft_wrap=True)


def print_notes(console: "Console", notes: list[str]) -> None:
    """Print the notes that a table cites by number."""
    for number, text in enumerate(notes, start=1):
        print_text(console, f"[{number}] {text}", "dim")


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield what is set by SIGINT or SIGTERM; the handlers of before are put back."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
