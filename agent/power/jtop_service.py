"""The service of jetson-stats (jtop), where you already run it.

Install: `pip install 'edgemeter[jtop]'` in the minor version of the board's service (AGPL-3.0). The
other Jetson sensors read the same chips without it. Use it if only root may read the chips: the
service runs as root, and you join the group `jtop`. The gain's standard uncertainty defaults to 5%.

    [sensors.jtop]
    interval_s = 1.0

Protocol: `power` of each rail is read, never `avg`, which is a running mean of all time since the
service began. `jetson_rails` makes the total: not the service's `tot`, which on AGX Orin counts
VDDQ_VDD2_1V8AO twice. The service's first client sets its period, whatever `interval_s` is.
Resolution: 40 uV over the board's usual shunt, at the present voltage.
Tested with: a module that plays its interface, and what an Orin Nano's service answered.
"""

import queue
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import ROOT, AbsentError, Description, Rail, Reading, jetson_rails
from edgemeter.agent.power.values import positive_setting

SOCKET = "run/jtop.sock"


class _JtopRail(msgspec.Struct, frozen=True):
    """One rail, in mW and mV; `tot` has the name of its rail, or none if it is a sum."""

    power: int | float
    volt: int | float | None = None
    online: bool = True
    name: str | None = None


class _Power(msgspec.Struct, frozen=True):
    """The content of `jtop.power`."""

    rail: dict[str, _JtopRail]
    tot: _JtopRail | None = None


class Jtop:
    """Reads the rails that jtop's service measures."""

    def __init__(self, interval_s: str = "1.0", root: Path = ROOT) -> None:
        self._interval_s = positive_setting("jtop", "interval_s", interval_s)
        self._root = root
        self._client: Any = None
        # The errors of calls of the library, which are known once it is loaded.
        self._failures: tuple[type[Exception], ...] = (OSError, EOFError, queue.Empty)

    def describe(self) -> Description:
        """Return which board's total it is, and the service's interval."""
        rails = self._power()
        board = jetson_rails.board_of(list(rails), jetson_rails.device_tree_names(self._root))
        steps_w = {
            name: jetson_rails.SHUNT_STEP_UV / board.shunt_uohm * volt / 1000
            for name in board.total
            if board.usual_step_w(name) is not None and (volt := rails[name].volt)
        }
        warnings = [
            f"rail {name!r} is offline and not needed for the total"
            for name, rail in rails.items()
            if not rail.online
        ]
        interval_s = float(self._client.interval)
        try:
            return jetson_rails.describe(
                "jtop", board, _shown(rails), interval_s * 1000, steps_w, warnings
            )
        except TransientError as error:
            raise UnavailableError(
                f"jtop's service has a rail of the total offline: {error}"
            ) from error

    def read(self) -> Reading:
        """Return the service's next reading; waits up to an interval for it."""
        rails = self._power()
        taken_ns = time.monotonic_ns()
        board = jetson_rails.board_of(list(rails), jetson_rails.device_tree_names(self._root))
        rail_powers = _shown(rails)
        return Reading(
            taken_ns=taken_ns, power_w=jetson_rails.total_w(board, rail_powers), rails=rail_powers
        )

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _power(self) -> dict[str, _JtopRail]:
        client = self._open()
        try:
            answers = client.ok()
            power = client.power if answers else None
        except self._failures as error:
            self.close()
            raise UnavailableError(_refused(error)) from error
        if not answers:
            self.close()
            raise UnavailableError(
                "jtop's service stopped answering: see `systemctl status jtop.service`"
            )
        return _rails(power)

    def _open(self) -> Any:
        if self._client is not None:
            return self._client
        socket = self._root / SOCKET
        if not socket.exists():
            raise AbsentError(
                f"no jtop service here ({str(socket)!r} is not there): `pip install "
                "'edgemeter[jtop]'`, then `sudo jtop --install-service`"
            )
        try:
            library = import_module("jtop")
            self._failures = (*self._failures, library.JtopException)
        except (ImportError, AttributeError) as error:
            raise UnavailableError(
                f"jtop's service runs here and its library cannot be loaded ({error}): pip "
                "install 'edgemeter[jtop]'"
            ) from error
        try:
            client = library.jtop(interval=self._interval_s)
            client.start()
        except self._failures as error:
            raise UnavailableError(_refused(error)) from error
        self._client = client
        return client


def _rails(power: object) -> dict[str, _JtopRail]:
    """Return the rails by name, the total's own among them."""
    try:
        converted = msgspec.convert(power, type=_Power)
    except msgspec.ValidationError as error:
        raise UnavailableError(
            f"jtop's power has an unknown format ({error}): this needs jetson-stats 4.3 or "
            "newer; report its version"
        ) from error
    rails = {name: rail for name, rail in converted.rail.items() if jetson_rails.is_rail(name)}
    if converted.tot is not None and converted.tot.name:
        rails[converted.tot.name] = converted.tot
    return rails


def _shown(rails: dict[str, _JtopRail]) -> tuple[Rail, ...]:
    return tuple(
        Rail(name, rail.power / 1000 if rail.online else None) for name, rail in rails.items()
    )


def _refused(error: Exception) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    return (
        f"jtop's service cannot be asked: {reason}; the library must have the service's version, "
        "and this user be in the group jtop"
    )
