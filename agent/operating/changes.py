"""Settings of the board for the time of a measurement: checked, recorded as found, changed, and put back whatever ends it."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine


def check(points: Collection[OperatingPoint], machine: Machine = THIS_MACHINE) -> None:
    """Check that this board can be set to each of the points; nothing is changed.

    Raises:
        ConfigError: a mode, governor or clock is not among the board's, which are named.
        UnavailableError: the board has no such setting, this user may not write it, or the mode needs a reboot.
    """
    raise NotImplementedError


class ChangedBoard:
    """A board whose settings may be changed for a while; from `changed_board`."""

    def set(self, point: OperatingPoint | None) -> OperatingPoint:
        """Set the board to `point` (None: as it was found) and return it as read back: modes by name, the fields of `point` only.

        What `point` leaves open is as it was found, or, in another power mode, as that mode sets it.

        Raises:
            ConfigError: as `check`.
            UnavailableError: the board did not take a setting; the other settings of the point may be set: the block puts them back.
        """
        raise NotImplementedError


@contextmanager
def changed_board(home: Path, machine: Machine = THIS_MACHINE) -> Iterator[ChangedBoard]:
    """Yield the board, to be set within the block, and put its settings back when the block ends, however it does.

    Hold the run lock meanwhile (`quiet_board`). The settings as found are in `home`/restore.json before the first change; should this
    process be killed, its guardian puts them back within a second, or the next start does (`restore_leftover`).

    Raises:
        UnavailableError: another process changes the board, an earlier record waits to be put back, the board is throttled so that its
            highest clocks cannot be read, or, at the end, a setting cannot be put back: the record stays.
    """
    raise NotImplementedError
    yield


def restore_leftover(home: Path, machine: Machine = THIS_MACHINE, *, holds_run_lock: bool = False) -> str | None:
    """Put back what a killed process left changed, and return what was done, or why it was not, in one line; None if nothing is left.

    It takes the run lock, if it is free, unless the caller holds it. It raises nothing: a damaged or foreign record is a line too.
    """
    raise NotImplementedError


@contextmanager
def quiet_board(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block as `run_lock` does, after putting back what a killed process left, which is reported."""
    raise NotImplementedError
    yield
