"""Measures what a command was given with `--on` where it says."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.cli.elsewhere import RemoteOutcome, RemoteWork
from edgemeter.provisioning.apply.ssh import SshTarget
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.elsewhere import over_fleet, over_ssh
from edgemeter.provisioning.elsewhere.target import FleetTarget, parse_target
from edgemeter.provisioning.jobs import packing


def measure_elsewhere(on: Sequence[str], work: RemoteWork) -> Iterator[RemoteOutcome]:
    """Yield the outcome of each device; those of the fleet measure at the same time, boards over SSH one after the other.

    Raises:
        ConfigError: a value of `--on` is wrong.
        KeyboardInterrupt: it was pressed; what had ended was yielded before.
    """
    targets = dict.fromkeys(map(parse_target, on))
    selections = [target.selection for target in targets if isinstance(target, FleetTarget)]
    if selections:
        selection = selections[0] if len(selections) == 1 else " | ".join(f"({text})" for text in selections)
        yield from _guarded(selection, over_fleet.measure(selection, work))
    for target in targets:
        if isinstance(target, SshTarget):
            yield from _guarded(target.name, _over_ssh(target, work))


def _guarded(name: str, outcomes: Iterator[RemoteOutcome]) -> Iterator[RemoteOutcome]:
    """Yield the outcomes, and what ended them as one: the other devices are measured all the same."""
    try:
        yield from outcomes
    except EdgemeterError as error:
        yield RemoteOutcome(name, errors=[error])


def _over_ssh(target: SshTarget, work: RemoteWork) -> Iterator[RemoteOutcome]:
    with tempfile.TemporaryDirectory(prefix="edgemeter-suite-") as folder:
        store = ContentStore(Path(folder))
        packed = packing.pack(work.written, work.folder, store)
        work.announce()
        board = over_ssh.measure(target, packed, store, work.options, work.report)
    yield RemoteOutcome(board.records[0].device if board.records else board.host, board.records, board.errors)
    if board.interruption is not None:
        raise board.interruption
