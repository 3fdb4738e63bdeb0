"""Ports of USB hubs that hang on the server, switched by the command `uhubctl`.

    switch = "uhubctl://1-1.4/2"            # hub and port, as `uhubctl` lists them

Many hubs switch all their ports together (a Raspberry Pi 4's own does): boards on one hub count as sharing one switch.

Source: uhubctl's README and its `--help`: -l location, -p ports, -a action, -r repeat; status lines `Port 2: 0100 power`.
Tested with: a program that prints what uhubctl's documentation shows; not yet on a hub.
"""

import re
import subprocess
import time

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.provisioning.rescue import Power
from edgemeter.provisioning.rescue.switching import Sleep, cycle_power
from edgemeter.provisioning.rescue.wiring import Wiring

PROGRAM = "uhubctl"
TIMEOUT_S = 60.0
# Some systems turn a port on again at once; uhubctl turns it off this many times.
REPEAT = "100"
PORT = re.compile(r"^\s*Port\s+(\d+):\s+[0-9a-fA-F]{4}\s*(.*)$", re.MULTILINE)


class Uhubctl:
    """One port of one hub."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired

    def on(self) -> None:
        """Switch on."""
        self._run("-a", "on")

    def off(self) -> None:
        """Switch off."""
        self._run("-a", "off", "-r", REPEAT)

    def cycle(self, off_s: float, sleep: Sleep = time.sleep) -> None:
        """Switch off, wait, switch on."""
        cycle_power(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether the port is on; a hub with a USB 2 and a USB 3 half reports both."""
        ports = [words.split() for port, words in PORT.findall(self._run()) if port == self._wired.part]
        if not ports:
            raise UnavailableError(
                f"{PROGRAM} shows no port {self._wired.part} of hub {self._wired.place!r}: `{PROGRAM}` lists what can be switched"
            )
        return Power(any("power" in words for words in ports))

    def _run(self, *action: str) -> str:
        command = [PROGRAM, "-l", self._wired.place, "-p", self._wired.part, *action]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
        except FileNotFoundError as error:
            raise UnavailableError(f"{PROGRAM} is not installed: install it (`apt install {PROGRAM}`)") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TransientError(f"{' '.join(command)} did not finish: {error}") from error
        if done.returncode:
            lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise UnavailableError(
                f"{' '.join(command)} failed ({lines[0] if lines else f'status {done.returncode}'}): may this user switch the hub?"
            )
        return done.stdout.decode(errors="replace")
