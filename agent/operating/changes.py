"""Settings of the board for the time of a measurement: checked, recorded as found, changed, and put back whatever ends it."""

import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError, os_error_as
from edgemeter.agent.base.file_lock import RunLock, SharedLock, run_lock
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import is_slowed_to_cool
from edgemeter.agent.operating.board_settings import SettingError
from edgemeter.agent.operating.knobs import KNOBS, check_setting, settings_of
from edgemeter.agent.operating.restoring import LOCK, RECORD, RestoreRecord, put_back, read_record, record_now, remove_record

logger = logging.getLogger(__name__)

GUARDIAN = "edgemeter.agent.operating.guardian"
GUARD_S = 30.0
# So long another may be at work to put a board back: nvpmodel takes a few seconds where it switches cores.
OTHERS_S = 30.0
POLL_S = 0.02
_UNGUARDED = "the board is not changed without a process that would put it back, and none can be started"


def check(points: Collection[OperatingPoint], machine: Machine = THIS_MACHINE) -> None:
    """Check that this board can be set to each of the points; nothing is changed.

    Raises:
        ConfigError: a mode, governor or clock is not among the board's, which are named.
        UnavailableError: the board has no such setting, this user may not write it, or the mode needs a reboot.
    """
    for name, value in dict.fromkeys(item for point in points for item in settings_of(point).items()):
        check_setting(machine, name, value)


class ChangedBoard:
    """A board whose settings may be changed for a while; from `changed_board`."""

    def __init__(self, home: Path, machine: Machine, lock: SharedLock) -> None:
        self._home, self._machine, self._lock = home, machine, lock
        try:
            self._record = record_now(machine)
        except SettingError as error:
            raise UnavailableError(f"the settings of this board cannot be read, so they could not be put back: {error}") from error
        self._guardian: subprocess.Popen[bytes] | None = None
        self._mode = self._found_mode
        # What the mode that the board is in sets itself.
        self._of_mode = self._record.settings

    @property
    def _found_mode(self) -> str | None:
        return next(iter(self._record.settings.get("power_mode", {}).values()), None)

    def begin(self) -> None:
        """Set the guardian on guard, then keep the record on the disk."""
        self._guard()
        durable_file.write_struct(self._home / RECORD, self._record)

    def set(self, point: OperatingPoint | None) -> OperatingPoint:
        """Set the board to `point` (None: as it was found) and return it as read back: modes by name, the fields of `point` only.

        What `point` leaves open is as it was found, or, in another power mode, as that mode sets it.

        Raises:
            ConfigError: as `check`.
            UnavailableError: the board did not take a setting; it is put back as it was found.
        """
        settings = settings_of(point or OperatingPoint())
        check([OperatingPoint(**settings)], self._machine)
        if self._guardian is None or self._guardian.poll() is not None:
            self._guard()
        try:
            mode = self._set_mode(settings.pop("power_mode", None))
            written = {name: KNOBS[name].write(self._machine, value) for name, value in settings.items()}
        except SettingError as error:
            why = "; ".join(["", *self._put_back()])
            raise UnavailableError(f"the board was not set to {point.words if point else 'what it was'}: {error}{why}") from error
        return OperatingPoint(power_mode=mode, **written)

    def _set_mode(self, value: str | None) -> str | None:
        """Set the power mode with the clocks that are its own, and return its name, None for the one that was found."""
        knob = KNOBS["power_mode"]
        self._put_clocks_back()
        if self._found_mode is None:
            return None
        name: str | None = None
        if value is None:
            knob.put_back(self._machine, self._record.settings["power_mode"])
        else:
            name = knob.write(self._machine, value)
        mode = next(iter(knob.read(self._machine).values()))
        if mode != self._mode:
            self._mode = mode
            is_found = mode == self._found_mode
            self._of_mode = self._record.settings if is_found else {key: entry.read(self._machine) for key, entry in KNOBS.items()}
            if is_found:
                self._put_clocks_back()
        return name

    def _put_clocks_back(self) -> None:
        for name, knob in KNOBS.items():
            if name != "power_mode" and name in self._of_mode:
                knob.put_back(self._machine, self._of_mode[name])

    def _put_back(self) -> list[str]:
        self._mode, self._of_mode = self._found_mode, self._record.settings
        return put_back(self._record, self._machine)

    def end(self) -> None:
        """Put the board back and end the guardian; raises UnavailableError if a setting cannot be put back: the record stays."""
        problems = self._put_back()
        if not problems:
            remove_record(self._home)
        self._lock.release()
        self._dismiss()
        if problems and (self._home / RECORD).exists():
            raise UnavailableError(_not_put_back(self._home, problems))

    def _dismiss(self) -> None:
        """Let the guardian end: it looks for the record, once."""
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guardian.wait(GUARD_S)

    def _guard(self) -> None:
        """Start the guardian, in place of one that has ended, and return when it is on guard."""
        self._dismiss()
        where = (str(self._home.absolute()), str(self._machine.root))
        try:
            self._guardian = subprocess.Popen(
                [sys.executable, "-m", GUARDIAN, *where, self._record.token, str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )  # fmt: skip
        except OSError as error:
            raise UnavailableError(f"{_UNGUARDED} ({error.strerror}): free memory, and try again") from error
        with self._guardian.stdout or nullcontext() as ready:
            if ready is None or not ready.readline():
                raise UnavailableError(f"{_UNGUARDED} (it ended at once): free memory, and try again")


@contextmanager
def changed_board(home: Path, machine: Machine = THIS_MACHINE) -> Iterator[ChangedBoard]:
    """Yield the board, to be set within the block, and put its settings back when the block ends, however it does.

    Hold the run lock meanwhile (`quiet_board`). The settings as found are in `home`/restore.json before the first change; should this
    process be killed, its guardian puts them back within a second, or the next start does (`restore_leftover`).

    Raises:
        UnavailableError: another process changes the board, an earlier record waits to be put back, the board is throttled so that its
            highest clocks cannot be read, or, at the end, a setting cannot be put back: the record stays.
    """
    with os_error_as(UnavailableError, f"cannot make {str(home)!r}, which is to hold what the board was set to", "set EDGEMETER_HOME"):
        durable_file.make_folder(home)
    lock = SharedLock(home / LOCK)
    try:
        if not lock.take("edgemeter"):
            raise UnavailableError(f"the board's settings are changed already, by {lock.holder()}: wait until it ends")
        # A command that sets the board holds it until it has ended, even where this process is killed before.
        os.set_inheritable(lock.descriptor(), True)
        if read_record(home, machine) is not None:
            raise UnavailableError(_not_put_back(home, ["an earlier run left them changed"]))
        if is_slowed_to_cool(machine):
            raise UnavailableError(
                "the kernel holds clocks back now to cool the chip, and hides their settings: let the board cool, then try again"
            )
        board = ChangedBoard(home, machine, lock)
        try:
            board.begin()
            yield board
        except BaseException:
            try:
                board.end()
            except EdgemeterError as error:
                # What ended the block is raised.
                logger.warning("%s", error)
            raise
        board.end()
    finally:
        lock.release()


def restore_leftover(home: Path, machine: Machine = THIS_MACHINE, *, holds_run_lock: bool = False) -> str | None:
    """Put back what a killed process left changed, and return what was done, or why it was not, in one line; None if nothing is left.

    It takes the run lock, if it is free, unless the caller holds it. It raises nothing: a damaged or foreign record is a line too.
    """
    # On nearly every start there is none.
    if not os.path.lexists(home / RECORD):
        return None
    lock, run = SharedLock(home / LOCK), RunLock(home)
    with ExitStack() as stack:
        stack.callback(lock.release)
        stack.callback(run.release)
        try:
            if not holds_run_lock and not run.take("edgemeter: the board is put back"):
                # Whoever measures now was told, or changed it.
                return None
            return _restore_locked(home, machine, lock)
        except EdgemeterError as error:
            return str(error)


def _restore_locked(home: Path, machine: Machine, lock: SharedLock) -> str | None:
    until_s = time.monotonic() + OTHERS_S
    if (record := read_record(home, machine)) is None:
        return None
    if problem := _rights_problem(home):
        return _not_put_back(home, [problem], record)
    while not lock.take("edgemeter"):
        # The guardian is at work, or a command that the killed process began.
        if time.monotonic() > until_s:
            return _not_put_back(home, [f"{lock.holder()} still changes them"], record)
        time.sleep(POLL_S)
    os.set_inheritable(lock.descriptor(), True)
    if (record := read_record(home, machine)) is None:
        return None
    if problems := put_back(record, machine):
        return _not_put_back(home, problems, record)
    remove_record(home)
    return f"the board was put back as it was before a run that was cut off (pid {record.pid}, since {record.since}): {record.words}"


def _rights_problem(home: Path) -> str | None:
    return None if os.access(home, os.W_OK) else f"no right to write {str(home)!r}"


def _not_put_back(home: Path, problems: list[str], record: RestoreRecord | None = None) -> str:
    of = f" since {record.since}" if record else ""
    command = f'sudo env EDGEMETER_HOME={shlex.quote(str(home.absolute()))} "$(command -v edgemeter)" doctor'
    return f"the board's settings are changed{of} ({'; '.join(problems)}): `{command}` puts them back"


@contextmanager
def quiet_board(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block as `run_lock` does, after putting back what a killed process left, which is reported."""
    with run_lock(home, holder, report):
        if (line := restore_leftover(home, holds_run_lock=True)) is not None:
            report(line)
        yield
