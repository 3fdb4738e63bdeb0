"""The world that a power sensor reads: a tree of files, and commands. A recording stands in for it, and the same code reads it."""

import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.machine.machine import COMMAND_TIMEOUT_S, run_in_english
from edgemeter.agent.power import AbsentError, PowerSensor

CHUNK_BYTES = 65536
Located = TypeVar("Located")


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command that ended; `status` is its exit status."""

    stdout: str
    stderr: str = ""
    status: int = 0


class CommandStream(Protocol):
    """The lines of a command that goes on printing."""

    def line(self, timeout_s: float) -> str:
        """Return the next line without its end.

        Raises:
            TransientError: none came in time.
            UnavailableError: the command has ended.
        """

    def close(self) -> None:
        """End the command; may be called twice."""


def run_command(arguments: Sequence[str]) -> CommandOutput:
    """Return what the command printed, whatever its exit status.

    Raises:
        AbsentError: there is no such command.
        UnavailableError: it may not be started.
        TransientError: it took longer than 5 s.
    """
    try:
        completed = run_in_english(arguments)
    except subprocess.TimeoutExpired as error:
        raise TransientError(f"`{' '.join(arguments)}` took longer than {error.timeout:.3g} s: check the load of the machine") from error
    except OSError as error:
        raise _not_started(arguments, error) from error
    return CommandOutput(completed.stdout.decode(errors="replace"), completed.stderr.decode(errors="replace"), completed.returncode)


class CommandProcess:
    """A command that goes on printing, started.

    Raises:
        AbsentError: there is no such command.
        UnavailableError: it may not be started.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._name = arguments[0]
        try:
            self._process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
                bufsize=0,
            )
        except OSError as error:
            raise _not_started(arguments, error) from error
        self._pending = b""

    def line(self, timeout_s: float) -> str:
        """Return the next line."""
        output = self._process.stdout
        if output is None or output.closed:
            raise UnavailableError(f"`{self._name}` was closed: open the sensor again")
        ends = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            if not select.select([output], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise TransientError(f"`{self._name}` printed nothing for {timeout_s:.3g} s")
            chunk = os.read(output.fileno(), CHUNK_BYTES)
            if not chunk:
                raise UnavailableError(f"`{self._name}` ended unexpectedly: start it by hand to see why")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(COMMAND_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass(frozen=True, slots=True)
class SensorWorld:
    """The sources that a sensor reads: `root` holds sys, proc and dev; `run` and `stream` start commands.

    `content` is what a recorded file holds, for sensors that read a network, a port or a library; None in the real world.
    """

    root: Path = field(default_factory=lambda: Path("/"))
    run: Callable[[Sequence[str]], CommandOutput] = run_command
    stream: Callable[[Sequence[str]], CommandStream] = CommandProcess
    content: bytes | None = None


HERE = SensorWorld()


class LocatedSensor(PowerSensor, ABC, Generic[Located]):
    """The base of sensors whose parts are located once, by `_find`, and read again and again until the sensor is closed."""

    def __init__(self, world: SensorWorld = HERE, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._world, self._clock = world, clock
        self._located: Located | None = None

    def close(self) -> None:
        """Forget the parts, which closes their files."""
        self._located = None

    def _parts(self) -> Located:
        self._located = self._located or self._find()
        return self._located

    @abstractmethod
    def _find(self) -> Located:
        """Return what is to be read, never empty; raises as `describe`."""


def _not_started(arguments: Sequence[str], error: OSError) -> UnavailableError:
    import shutil  # noqa: PLC0415 - takes long to import, and every sensor imports this module

    # A folder of PATH that this user may not list makes "permission denied" of a command that does not exist.
    if isinstance(error, FileNotFoundError) or shutil.which(arguments[0], os.F_OK) is None:
        return AbsentError(f"there is no command {arguments[0]!r} on this machine")
    return UnavailableError(f"cannot start {arguments[0]!r}: {error.strerror}: run it by hand to see what it needs")
