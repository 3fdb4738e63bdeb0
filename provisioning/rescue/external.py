"""Any other switch, by commands of the server that fleet.toml names: lists of words, run without a shell.

[switch.poe-1]
on = ["/usr/local/bin/poe", "on", "{device}"]
off = ["/usr/local/bin/poe", "off", "{device}"]
state = ["/usr/local/bin/poe", "state", "{device}"]      # prints on or off; may be left out

switch = "external:poe-1"
"""

import subprocess
import time
from collections.abc import Sequence

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.provisioning.rescue import Power, cycling
from edgemeter.provisioning.rescue.wiring import DEVICE, Wiring

TIMEOUT_S = 60.0


class External:
    """The commands of one [switch.NAME]."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired
        if not wired.entry.on or not wired.entry.off:
            message = (
                f"[switch.{wired.place}] has no commands: set on = [...] and off = [...] (or address = ..., and write switch:{wired.place})"
            )
            raise ConfigError(message)

    def on(self) -> None:
        """Give power."""
        self._run(self._wired.entry.on)

    def off(self) -> None:
        """Take it away."""
        self._run(self._wired.entry.off)

    def cycle(self, off_s: float, sleep: cycling.Sleep = time.sleep) -> None:
        """Take it away, wait, give it back."""
        cycling.by_hand(self, off_s, sleep)

    def state(self) -> Power:
        """Return what the command `state` prints, None where there is none."""
        if not self._wired.entry.state:
            return Power(None)
        said = self._run(self._wired.entry.state).strip().lower()
        if said not in {"on", "off"}:
            message = f"[switch.{self._wired.place}] state printed {said[:60]!r}: it has to print on or off"
            raise UnavailableError(message)
        return Power(said == "on")

    def _run(self, words: Sequence[str]) -> str:
        command = [word.replace(DEVICE, self._wired.device) for word in words]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            message = f"[switch.{self._wired.place}]: {command[0]!r} did not end within {TIMEOUT_S:.0f} s"
            raise TransientError(message) from error
        except OSError as error:
            message = f"[switch.{self._wired.place}]: cannot run {command[0]!r}: {error.strerror}"
            raise ConfigError(message) from error
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            message = f"[switch.{self._wired.place}]: {command[0]!r} failed with status {done.returncode}{f': {said[-1]}' if said else ''}"
            raise UnavailableError(message)
        return done.stdout.decode(errors="replace")
