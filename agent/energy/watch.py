"""The energy of anything: a block of Python code, or a command; by the same sensors, windows and uncertainties as that of a run.

from edgemeter.agent.energy.watch import Watch

with Watch() as watch:
    train_for_a_while()
print(watch.seen.energies.energy)
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.per_inference import Energies, EnergyRun
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.energy.window import Window
from edgemeter.agent.machine.attached import attached
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.power.detect import open_sensors

IDLE_S = 10.0


@dataclass(frozen=True, slots=True)
class WatchedEnergy:
    """What was watched: how long it took, and what the sensors support; `why_these` is how they were chosen."""

    seconds: float
    energies: Energies
    why_these: str


class Watch:
    """Measures the energy between the context's beginning and its end; the machine idles for `idle_s` before and after.

    `power` names sensors (NAME[,NAME]); without it that of the widest scope is taken. `units` is the number of work units
    within: energies are given per unit. Afterwards `seen` holds the result; it is not set where the block raised.

    Raises:
        UnavailableError: there is no power sensor, or not the one that was named.
        ConfigError: a sensor's settings are wrong.
    """

    seen: WatchedEnergy

    def __init__(self, power: str | None = None, *, idle_s: float = IDLE_S, units: int = 1, settings: config.Config | None = None) -> None:
        self._power = power
        self._idle_s = idle_s
        self._units = units
        self._settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> "Watch":  # noqa: PYI034 - typing.Self came with Python 3.11
        settings = self._settings or config.read()
        with ExitStack() as stack:
            sensors, self._why = stack.enter_context(open_sensors(self._power, settings.power, settings.sensors))
            if not sensors:
                raise UnavailableError(self._why)
            self._sampler = Sampler(sensors)
            stack.callback(self._sampler.stop)
            self._sampler.start()
            self._begun_ns = time.monotonic_ns()
            time.sleep(self._idle_s)
            self._stack = stack.pop_all()
        self._start_ns = time.monotonic_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end_ns = time.monotonic_ns()
        with self._stack:
            if kind is not None:
                return
            time.sleep(self._idle_s)
            ended_ns = time.monotonic_ns()
            # A last reading beyond the last edge.
            self._sampler.stop()
            run = EnergyRun(
                timed=Window(self._start_ns, end_ns),
                idle_before=Window(self._begun_ns, self._start_ns) if self._idle_s else None,
                idle_after=Window(end_ns, ended_ns) if self._idle_s else None,
                inferences=self._units,
                attached=attached(THIS_MACHINE),
                counts_inferences=False,
            )
            energies = per_inference.energies_of(self._sampler.traces().values(), run)
        self.seen = WatchedEnergy((end_ns - self._start_ns) / 1e9, energies, self._why)
