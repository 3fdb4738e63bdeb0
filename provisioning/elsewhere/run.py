"""Measures what a command was given with `--on` where it says: on devices of a fleet, or on a board at `ssh://[USER@]HOST[:PORT]`."""

from collections.abc import Iterator, Sequence

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.cli.elsewhere import RemoteOutcome, RemoteWork
from edgemeter.provisioning.apply.board import parse_target
from edgemeter.provisioning.elsewhere import over_fleet, over_ssh
from edgemeter.provisioning.inventory import selection


def measure_elsewhere(on: Sequence[str], work: RemoteWork) -> Iterator[RemoteOutcome]:
    """Yield the outcome of each device; those of the fleet measure at the same time, boards over SSH one after the other.

    Raises:
        ConfigError: a value of `--on` is wrong.
        KeyboardInterrupt: it was pressed; what had ended was yielded before.
    """
    targets = {text: parse_target(text, "--on") for text in on if "://" in text}
    selections = [text for text in dict.fromkeys(on) if text not in targets]
    for text in selections:
        selection.parse(text)
    if selections:
        joined = selections[0] if len(selections) == 1 else " | ".join(f"({text})" for text in selections)
        yield from _guarded(joined, over_fleet.measure(joined, work))
    for target in dict.fromkeys(targets.values()):
        yield from _guarded(target.name, over_ssh.measure(target, work))


def _guarded(name: str, outcomes: Iterator[RemoteOutcome]) -> Iterator[RemoteOutcome]:
    """Yield the outcomes, and what ended them as one: the other devices are measured all the same."""
    try:
        yield from outcomes
    except EdgemeterError as error:
        yield RemoteOutcome(name, errors=[error])
