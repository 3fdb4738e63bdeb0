"""The energy of a block of Python code or a command.

Sensors, windows and uncertainties are those of a run.

from edgemeter.agent.session.energy_watch import EnergyWatch

with EnergyWatch() as watch:
    train_for_a_while()
print(watch.seen.energies.energy)
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from edgemeter.agent.base import config, interrupts
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.energies import Energies
from edgemeter.agent.energy.per_inference import EnergyRun
from edgemeter.agent.energy.refusals import shortest_idle_s, shortest_window_s
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.energy.window import Window
from edgemeter.agent.machine.attached import attached
from edgemeter.agent.machine.load import OtherLoad, other_load, read_processes
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.power import Description
from edgemeter.agent.power.detect import described, open_sensors

IDLE_S = 10.0


@dataclass(frozen=True, slots=True)
class WatchedEnergy:
    """The result of an `EnergyWatch`: its duration and energies.

    `idle_s` is how long the machine idled before and after; `other_load` is the load of other
    processes.
    """

    seconds: float
    energies: Energies
    idle_s: float
    other_load: OtherLoad


class EnergyWatch:
    """Measures the energy of a `with` block; the machine idles for `idle_s` before and after.

    `power` names sensors (NAME[,NAME]); the default is the sensor with the widest scope. Without
    `idle_s` the machine idles for 10 s, or for as long as the slowest sensor needs. `units` is the
    number of work units in the block; energies are given per unit. `report` gets the needs of the
    sensors before the machine idles. After the block `seen` has the result, unless the block raised
    an error.

    Raises:
        UnavailableError: there is no power sensor, or not the one that was named.
        ConfigError: a sensor's settings are wrong.
    """

    seen: WatchedEnergy

    def __init__(
        self,
        power: str | None = None,
        *,
        idle_s: float | None = None,
        units: int = 1,
        settings: config.Config | None = None,
        report: Callable[[str], object] = lambda _: None,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = interrupts.sleep,
    ) -> None:
        self._power = power
        self._clock, self._sleep = clock, sleep
        self._asked_idle_s = idle_s
        self._idle_s = IDLE_S
        self._report = report
        self._units = units
        self._settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> "EnergyWatch":  # noqa: PYI034 - typing.Self came with Python 3.11
        settings = self._settings or config.read()
        with ExitStack() as stack:
            sensors, self._why = stack.enter_context(
                open_sensors(self._power, settings.power, settings.sensors)
            )
            if not sensors:
                remedy = (
                    ""
                    if self._power == "none"
                    else ": `edgemeter energy sensors --all` shows how to set one up"
                )
                raise UnavailableError(f"{self._why}{remedy}")
            if self._why:
                self._report(f"power: {self._why}")
            self._idle_s = self._idle_for(described(sensors))
            self._sampler = Sampler(sensors)
            stack.callback(self._sampler.stop)
            self._sampler.start()
            self._tables = [read_processes(THIS_MACHINE)]
            self._begun_ns = self._clock()
            self._idle()
            self._tables.append(read_processes(THIS_MACHINE))
            self._stack = stack.pop_all()
        self._start_ns = self._clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end_ns = self._clock()
        with self._stack:
            if kind is not None:
                return
            self._tables.append(read_processes(THIS_MACHINE))
            self._idle()
            run = EnergyRun(
                timed=Window(self._start_ns, end_ns),
                idle_before=Window(self._begun_ns, self._start_ns) if self._idle_s else None,
                idle_after=Window(end_ns, self._clock()) if self._idle_s else None,
                inferences=self._units,
                attached=attached(THIS_MACHINE),
                counts_inferences=False,
            )
            load_of_others = other_load([*self._tables, read_processes(THIS_MACHINE)], os.getpid())
            # After this, so that there is a reading beyond the end.
            self._sampler.stop()
            energies = per_inference.energies_of(self._sampler.traces().values(), run)
        self.seen = WatchedEnergy(
            (end_ns - self._start_ns) / 1e9, energies, self._idle_s, load_of_others
        )

    def _idle_for(self, described: Mapping[str, Description]) -> float:
        """Return how long to idle, and report the needs of the sensors."""
        needed_s = max(map(shortest_idle_s, described.values()), default=0.0)
        idle_s = max(IDLE_S, needed_s) if self._asked_idle_s is None else self._asked_idle_s
        for name, description in described.items():
            work_s, quiet_s = shortest_window_s(description), shortest_idle_s(description)
            lacks = f"; idling for {idle_s:g} s gives no net energy" if quiet_s > idle_s else ""
            self._report(
                f"{name}: with a reading every {description.period_ms:,.5g} ms, an energy needs "
                f"{work_s:,.4g} s of work, "
                f"and a net energy needs {quiet_s:,.4g} s of idle before and after{lacks}"
            )
        return idle_s

    def _idle(self) -> None:
        if self._idle_s:
            self._report(f"idling for {self._idle_s:.4g} s ...")
            self._sleep(self._idle_s)
