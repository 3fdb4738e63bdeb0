"""Ports of USB hubs that hang on the server, switched by the command `uhubctl`.

    switch = "uhubctl://1-1.4/2"            # hub and port, as `uhubctl` lists them

Many hubs switch all their ports together (a Raspberry Pi 4's own does): boards on one hub count as sharing one switch.

Source: uhubctl's README and its `--help`: -l location, -p ports, -a action, -r repeat; status lines `Port 2: 0100 power`.
Tested with: a program that prints what uhubctl's documentation shows; not yet on a hub.
"""

import re
import subprocess
import time

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.provisioning.rescue import Power, cycling
from edgemeter.provisioning.rescue.wiring import Wiring

PROGRAM = "uhubctl"
TIMEOUT_S = 60.0
# Some systems turn a port on again at once; uhubctl turns it off so many times.
REPEAT = "100"
PORT = re.compile(r"^\s*Port\s+(\d+):\s+[0-9a-fA-F]{4}\s*(.*)$", re.MULTILINE)


class Uhubctl:
    """One port of one hub."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired

    def on(self) -> None:
        """Give power."""
        self._run("-a", "on")

    def off(self) -> None:
        """Take it away."""
        self._run("-a", "off", "-r", REPEAT)

    def cycle(self, off_s: float, sleep: cycling.Sleep = time.sleep) -> None:
        """Take it away, wait, give it back."""
        cycling.by_hand(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether the port gives power; a hub with a USB 2 and a USB 3 half says so of each."""
        ports = [words.split() for port, words in PORT.findall(self._run()) if port == self._wired.part]
        if not ports:
            message = f"{PROGRAM} shows no port {self._wired.part} of hub {self._wired.place!r}: `{PROGRAM}` lists what can be switched"
            raise UnavailableError(message)
        return Power(any("power" in words for words in ports))

    def _run(self, *action: str) -> str:
        command = [PROGRAM, "-l", self._wired.place, "-p", self._wired.part, *action]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
        except FileNotFoundError as error:
            message = f"there is no {PROGRAM} here: install it (`apt install {PROGRAM}`)"
            raise UnavailableError(message) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            message = f"{' '.join(command)} did not end: {error}"
            raise TransientError(message) from error
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            message = f"{' '.join(command)} failed ({said[0] if said else f'status {done.returncode}'}): may this user switch the hub?"
            raise UnavailableError(message)
        return done.stdout.decode(errors="replace")
