"""Completion of names in a shell."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]


def completes(
    names: Callable[[], Iterable[str]], *, files: bool = False, several: bool = False
) -> Completer:
    """Return a callback that completes the names returned by `names`.

    Args:
        names: lists the names; called when a shell asks.
        files: also complete files, and nothing else before a letter is typed.
        several: the value is a list, `A,B`; its last part is completed.
    """

    def items(
        _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list["CompletionItem"]:
        import glob

        from click.shell_completion import CompletionItem

        if files and not incomplete:
            return [CompletionItem(incomplete, type="file")]
        before, comma, part = incomplete.rpartition(",") if several else ("", "", incomplete)
        completed = [f"{before}{comma}{name}" for name in names() if name.startswith(part)]
        if not files:
            return [CompletionItem(name) for name in completed]
        # bash shows either our list or its own files, not both.
        file_names = (
            [path.name for path in Path().glob(f"{glob.escape(incomplete)}*")]
            if completed and "/" not in incomplete
            else []
        )
        return [CompletionItem(name) for name in (*completed, *file_names)] or [
            CompletionItem(incomplete, type="file")
        ]

    return items
