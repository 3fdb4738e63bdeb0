"""Any other switch, by commands in fleet.toml that the server runs: lists of words, without a shell.

[switch.poe-1]
on = ["/usr/local/bin/poe", "on", "{device}"]
off = ["/usr/local/bin/poe", "off", "{device}"]
state = ["/usr/local/bin/poe", "state", "{device}"]      # prints on or off; may be left out

switch = "external:poe-1"

A port of a USB hub, by the program `uhubctl`; boards whose hub switches all its ports together share one [switch.NAME] without `-p`:

[switch.hub-port-2]
on = ["uhubctl", "-l", "1-1.4", "-p", "2", "-a", "on"]
off = ["uhubctl", "-l", "1-1.4", "-p", "2", "-a", "off", "-r", "100"]
"""

import subprocess
import time
from collections.abc import Sequence
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.provisioning.rescue import Power
from edgemeter.provisioning.rescue.wiring import DEVICE, Sleep, Wiring, restore_power

TIMEOUT_S = 60.0


class External:
    """The commands of one [switch.NAME]."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired
        if not wired.entry.on or not wired.entry.off:
            raise ConfigError(
                f"[switch.{wired.place}] has no commands: set on = [...] and off = [...] (or address = ..., and write switch:{wired.place})"
            )

    def turn(self, to: Literal["on", "off"]) -> None:
        """Run the command that switches on or off."""
        self._run(self._wired.entry.on if to == "on" else self._wired.entry.off)

    def cycle(self, off_s: float, sleep: Sleep = time.sleep) -> None:
        """Switch off, wait, switch on: whatever happens in between, switching on is tried."""
        self.turn("off")
        try:
            sleep(off_s)
        finally:
            restore_power(self, sleep)

    def state(self) -> Power:
        """Return what the command `state` prints, None without one."""
        if not self._wired.entry.state:
            return Power(None)
        printed = self._run(self._wired.entry.state).strip().lower()
        if printed not in {"on", "off"}:
            raise UnavailableError(f"[switch.{self._wired.place}] state printed {printed[:60]!r}: it has to print on or off")
        return Power(printed == "on")

    def _run(self, words: Sequence[str]) -> str:
        command = [word.replace(DEVICE, self._wired.device) for word in words]
        try:
            completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise TransientError(f"[switch.{self._wired.place}]: {command[0]!r} did not end within {TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise ConfigError(f"[switch.{self._wired.place}]: cannot run {command[0]!r}: {error.strerror}") from error
        if completed.returncode:
            lines = (completed.stderr or completed.stdout).decode(errors="replace").strip().splitlines()
            raise UnavailableError(
                f"[switch.{self._wired.place}]: {command[0]!r} failed with status {completed.returncode}{f': {lines[-1]}' if lines else ''}"
            )
        return completed.stdout.decode(errors="replace")
