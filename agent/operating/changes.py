"""Settings of the board for the time of a measurement: checked, recorded as found, changed, and put back whatever ends it."""

import logging
import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError
from edgemeter.agent.base.file_lock import RunLock, run_lock, run_lock_descriptors
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import is_slowed_to_cool
from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import DURABLE_RECORD, SettingError
from edgemeter.agent.operating.knobs import KNOBS, POWER_MODE, SETTABLE, check_setting, settings_of
from edgemeter.agent.operating.restoring import (
    RECORD,
    RestoreLock,
    RestoreRecord,
    keep_record,
    owner_problem,
    put_back,
    read_record,
    record_now,
    record_paths,
    removal_problem,
    remove_record,
)

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
        ConfigError: a mode or governor is not among the board's, which are named.
        UnavailableError: the board has no such setting, this user may not write it, or the mode needs a reboot.
    """
    for name, value in dict.fromkeys(item for point in points for item in settings_of(point).items()):
        check_setting(machine, name, value)


class ChangedBoard:
    """A board whose settings may be changed for a while; from `changed_board`."""

    def __init__(self, home: Path, machine: Machine, lock: RestoreLock) -> None:
        self._home, self._machine, self._lock = home, machine, lock
        try:
            self._record = record_now(machine)
        except SettingError as error:
            raise UnavailableError(f"the settings of this board cannot be read, so they could not be put back: {error}") from error
        self._guardian: subprocess.Popen[bytes] | None = None
        self._path: Path | None = None
        # The mode that the board is wholly in, None if that is not known, and what it sets itself.
        self._mode = self._found_mode
        self._of_mode = self._record.settings

    @property
    def _found_mode(self) -> str | None:
        return next(iter(self._record.settings.get("power_mode", {}).values()), None)

    def begin(self) -> None:
        """Set the guardian on guard, then keep the record on the disk."""
        self._guard()
        self._path = keep_record(self._record, self._home, self._machine)

    def _begin(self, *names: str) -> None:
        """Note in the record, before the first write, that these settings may be changed from now on."""
        begun = (*self._record.begun, *(name for name in names if name in self._record.settings and name not in self._record.begun))
        if self._path is not None and begun != self._record.begun:
            self._record = msgspec.structs.replace(self._record, begun=begun)
            durable_file.write_struct(self._path, self._record)

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
            self._begin(*settings)
            written = {name: SETTABLE[name].write(self._machine, value) for name, value in settings.items()}
        except SettingError as error:
            why = "; ".join(["", *self._put_back()])
            raise UnavailableError(f"the board was not set to {point.words if point else 'what it was'}: {error}{why}") from error
        return OperatingPoint(power_mode=mode, **written)

    def _set_mode(self, value: str | None) -> str | None:
        """Set the power mode with the clocks that are its own, and return its name, None for the one that was found."""
        self._put_clocks_back()
        if self._found_mode is None:
            return None
        number = self._found_mode if value is None else POWER_MODE.number_of(self._machine, value)
        if number != self._mode or POWER_MODE.read(self._machine) != {"nvpmodel": number}:
            self._enter_mode(number)
        return None if value is None else board_settings.power_mode_now().name

    def _enter_mode(self, number: str) -> None:
        # It sets clocks, and switches CPUs.
        self._begin(*KNOBS)
        self._mode = None
        if is_found := number == self._found_mode:
            POWER_MODE.put_back(self._machine, {"nvpmodel": number}, is_begun=True)
        else:
            POWER_MODE.write(self._machine, number)
        # Clocks that are held back to cool the chip are not the mode's own: it is entered again for the next point.
        is_hidden = not is_found and is_slowed_to_cool(self._machine)
        names = ("governor",) if is_hidden else tuple(KNOBS)
        self._of_mode = self._record.settings if is_found else {name: KNOBS[name].read(self._machine) for name in names}
        self._mode = None if is_hidden else number
        if is_found:
            self._put_clocks_back()

    def _put_clocks_back(self) -> None:
        for name, knob in KNOBS.items():
            if name != "power_mode" and name in self._of_mode:
                knob.put_back(self._machine, self._of_mode[name], is_begun=name in self._record.begun)

    def _put_back(self) -> list[str]:
        problems = put_back(self._record, self._machine)
        self._mode, self._of_mode = None if problems else self._found_mode, self._record.settings
        return problems

    def end(self) -> None:
        """Put the board back and end the guardian; raises UnavailableError if a setting cannot be put back: the record stays."""
        problems = self._put_back()
        try:
            if self._path is not None and not problems:
                remove_record(self._path)
        finally:
            self._lock.release()
            self._dismiss()
        if problems and self._path is not None and self._path.exists():
            raise UnavailableError(_not_put_back(self._path, self._home, problems))

    def _dismiss(self) -> None:
        """Let the guardian end: it looks for the record, once."""
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guardian.wait(GUARD_S)

    def _guard(self) -> None:
        """Start the guardian, in place of one that has ended, and return when it is on guard."""
        self._dismiss()
        self._guardian = start_guardian(self._home, self._machine, self._record.token)


def start_guardian(home: Path, machine: Machine, token: str) -> "subprocess.Popen[bytes]":
    """Start a guardian of the record of that `token`, and return it when it is on guard.

    Raises:
        UnavailableError: it cannot be started, or is not ready in time.
    """
    try:
        guardian = subprocess.Popen(
            [sys.executable, "-m", GUARDIAN, str(home.absolute()), str(machine.root), token, str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"}, pass_fds=run_lock_descriptors(home),
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"{_UNGUARDED} ({error.strerror}): free memory, and try again") from error
    with guardian.stdout or nullcontext() as ready:
        is_ready = ready is not None and bool(select.select([ready], [], [], GUARD_S)[0] and ready.readline())
    if not is_ready:
        with guardian:
            guardian.kill()
        raise UnavailableError(f"{_UNGUARDED} (it ended at once, or was not ready within {GUARD_S:g} s): free memory, and try again")
    return guardian


@contextmanager
def changed_board(home: Path, machine: Machine = THIS_MACHINE) -> Iterator[ChangedBoard]:
    """Yield the board, to be set within the block, and put its settings back when the block ends, however it does.

    Hold the run lock meanwhile (`quiet_board`). The settings as found are in a record of the board before the first change; should this
    process be killed, its guardian puts them back within a second, holding the run lock, or the next start does (`restore_leftover`).

    Raises:
        UnavailableError: another process changes the board, an earlier record waits to be put back, the board is throttled so that its
            highest clocks cannot be read, or, at the end, a setting cannot be put back: the record stays.
    """
    lock = RestoreLock(home, machine)
    try:
        if not lock.take("edgemeter"):
            raise UnavailableError(f"the board's settings are changed already, by {lock.holder()}: wait until it ends")
        for path in record_paths(home, machine):
            if (problem := owner_problem(path)) or read_record(path, machine) is not None:
                raise UnavailableError(_not_put_back(path, home, [problem or "an earlier run left them changed"]))
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
    if not (paths := record_paths(home, machine)):
        return None
    lock, run = RestoreLock(home, machine), RunLock(home)
    with ExitStack() as stack:
        stack.callback(lock.release)
        stack.callback(run.release)
        try:
            if not holds_run_lock and not run.take("edgemeter: the board is put back"):
                # Whoever measures now was told, or changed it.
                return None
        except EdgemeterError as error:
            return str(error)
        lines = [_restored(path, home, machine, lock) for path in paths]
    return "; ".join(line for line in lines if line) or None


def _restored(path: Path, home: Path, machine: Machine, lock: RestoreLock) -> str | None:
    try:
        if problem := owner_problem(path):
            return _not_put_back(path, home, [problem])
        return _restore_locked(path, home, machine, lock)
    except EdgemeterError as error:
        return str(error)


def _restore_locked(path: Path, home: Path, machine: Machine, lock: RestoreLock) -> str | None:
    until_s = time.monotonic() + OTHERS_S
    if (record := read_record(path, machine)) is None:
        return None
    if problem := removal_problem(path):
        return _not_put_back(path, home, [problem], record)
    while not lock.take("edgemeter"):
        # The guardian is at work, or a command that the killed process began.
        if time.monotonic() > until_s:
            return _not_put_back(path, home, [f"{lock.holder()} still changes them"], record)
        time.sleep(POLL_S)
    if (record := read_record(path, machine)) is None:
        return None
    if problems := put_back(record, machine):
        return _not_put_back(path, home, problems, record)
    remove_record(path)
    return f"the board was put back as it was before a run that was cut off (pid {record.pid}, since {record.since}): {record.words}"


def _not_put_back(path: Path, home: Path, problems: list[str], record: RestoreRecord | None = None) -> str:
    of = f" since {record.since}" if record else ""
    in_home = f"env EDGEMETER_HOME={shlex.quote(str(home.absolute()))} " if path == home / RECORD else ""
    owner = path.lstat().st_uid if os.path.lexists(path) else 0
    if owner and owner == os.geteuid():
        # Root acts on what somebody with its rights made root's.
        file, roots = shlex.quote(str(path.absolute())), DURABLE_RECORD
        command = f'sudo install -m 644 {file} /{roots} && sudo rm {file} && sudo "$(command -v edgemeter)" doctor'
    else:
        user = f"-u '#{owner}' " if owner else ""
        command = f'sudo {user}{in_home}"$(command -v edgemeter)" doctor'
    return f"the board's settings are changed{of} ({'; '.join(problems)}): `{command}` puts them back"


@contextmanager
def quiet_board(home: Path, holder: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the run lock for the block as `run_lock` does, after putting back what a killed process left, which is reported."""
    with run_lock(home, holder, report):
        if (line := restore_leftover(home, holds_run_lock=True)) is not None:
            report(line)
        yield
