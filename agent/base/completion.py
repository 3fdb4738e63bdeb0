"""Names that a shell completes: listed by the module that knows them, which is imported only when a shell asks."""

from collections.abc import Callable
from importlib import import_module

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
SENSORS = "edgemeter.agent.power:names"
MODELS = "edgemeter.models.fetch.named:known_names"


def completes(place: str, *, files: bool = False, several: bool = False) -> Completer:
    """Return what completes the names that the function at `module:function` returns.

    Args:
        place: where the function is.
        files: also complete files.
        several: the value is a list, `A,B`; its last part is completed.
    """

    def items(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        module, _, function = place.partition(":")
        before, comma, part = incomplete.rpartition(",") if several else ("", "", incomplete)
        found = [CompletionItem(f"{before}{comma}{name}") for name in getattr(import_module(module), function)() if name.startswith(part)]
        return [*found, CompletionItem(incomplete, type="file")] if files else found

    return items
