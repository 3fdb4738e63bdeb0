"""Measures what a command was given with `--on` where it says."""

from collections.abc import Iterator, Sequence

from edgemeter.agent.cli.elsewhere import RemoteOutcome, RemoteWork
from edgemeter.provisioning.elsewhere import over_fleet
from edgemeter.provisioning.elsewhere.target import FleetTarget, parse_target


def measure_elsewhere(on: Sequence[str], work: RemoteWork) -> Iterator[RemoteOutcome]:
    """Yield what each device measured; devices of the fleet measure at the same time.

    Raises:
        EdgemeterError: a value of `--on` or the suite is wrong, or no device can measure it.
        KeyboardInterrupt: it was pressed; what had ended was yielded before.
    """
    targets = [parse_target(text) for text in on]
    selections = [target.selection for target in targets if isinstance(target, FleetTarget)]
    if selections:
        yield from over_fleet.measure(" | ".join(f"({text})" for text in selections) if len(selections) > 1 else selections[0], work)
    for target in targets:
        if not isinstance(target, FleetTarget):
            raise NotImplementedError(target)
