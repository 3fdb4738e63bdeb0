"""Verified bundles as text: a line each, and a table of what differs."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from edgemeter.agent.bundle.verify import Signature, Verification


def show(found: Sequence[Verification], version: str, console: Console | None = None) -> None:
    """Print what came of each bundle; `version` is that of this edgemeter."""
    console = console or Console()
    for one in found:
        for line in _lines(one, version):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if one.differences:
            console.print(_table(one))


def _lines(one: Verification, version: str) -> list[str]:
    if one.error is not None:
        return [f"{one.file}: damaged: {one.error}"]
    count = len(one.differences)
    lines = [
        f"{one.file}: {one.model} on {one.device}: {one.checked} figures computed again, {count or 'none'} differ{'s' * (count == 1)}",
        f"  {_signed(one.signature)}",
    ]
    if one.written_by != version:
        lines.append(
            f"  written by edgemeter {one.written_by}, computed again by {version}: what it states may have been defined otherwise"
        )
    lines.extend(f"  not computed again: {left.field}: {left.why}" for left in one.left)
    return lines


def _signed(signature: Signature | None) -> str:
    if signature is None or signature.state == "unsigned":
        return "not signed" + (", though a key was expected" if signature and signature.expected is False else "")
    if signature.state in ("wrong", "unchecked"):
        return f"{'WRONG SIGNATURE' if signature.state == 'wrong' else 'signature not checked'}: {signature.detail}"
    whose = {None: "; whose that is, --key tells", True: ", the expected one", False: ", NOT the expected one"}[signature.expected]
    return f"signed by {signature.fingerprint}{whose}"


def _table(one: Verification) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("field", overflow="fold")
    table.add_column("stated", justify="right", overflow="fold")
    table.add_column("computed again", justify="right", overflow="fold")
    for difference in one.differences:
        table.add_row(difference.field, _text(difference.stated), _text(difference.recomputed))
    return table


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
