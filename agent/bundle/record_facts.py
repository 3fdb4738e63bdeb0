"""A record and its raw samples as the parts of a check take them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Windows
from edgemeter.agent.energy import queries
from edgemeter.agent.energy.accelerators import accelerator_link
from edgemeter.agent.energy.sampler import SensorTrace, unpack_trace
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import absolute_windows
from edgemeter.agent.engine.scenarios import steady
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from edgemeter.agent.machine.power_range import power_range


@dataclass(frozen=True)
class RecordFacts:
    """A record and its raw samples by name, whole numbers and reals as they were measured."""

    record: RunRecord
    raw: Mapping[str, NDArray[Any]]

    @cached_property
    def timed(self) -> TimedQueries | None:
        """Return the timed queries on the monotonic clock, as the scenario gave them; None where the record does not hold them."""
        starts_ns, latency_ns, windows = self.raw.get("query_start"), self.raw.get("latency"), self.record.windows
        if starts_ns is None or latency_ns is None or windows is None or not latency_ns.size == starts_ns.size > 0:
            return None
        arrivals_ns = self.raw.get("arrival")
        none = np.empty(0, np.int64)
        pauses = [self.raw.get(name, none) for name in ("pause_start", "pause_end")]
        schedule = None
        if self.record.steady is not None and self.record.load is not None:
            frames = latency_ns.size + self.record.load.unserved
            schedule = dataclasses.replace(steady.schedule_of_record(self.record.steady), frames=frames)
        pauses_ns = np.stack(pauses, axis=1) if pauses[0].size == pauses[1].size else queries.no_pauses()
        return TimedQueries(
            starts_ns=starts_ns + windows.timed_start_ns,
            latency_ns=latency_ns,
            kept={},
            # A scenario that is timed over its queries only does not need its own beginning.
            begin_ns=windows.timed_start_ns,
            end_ns=windows.timed_start_ns + windows.timed_end_ns,
            arrivals_ns=None if arrivals_ns is None else arrivals_ns + windows.timed_start_ns,
            unserved=self.record.load.unserved if self.record.load else 0,
            overlap=self.users is not None or (arrivals_ns is not None and schedule is None and self.has_server),
            users=self.users,
            pauses_ns=pauses_ns + windows.timed_start_ns,
            ramp_up_ns=self.raw.get("ramp_up_end", none) + windows.timed_start_ns,
            failures=self.record.served.failures if self.record.served else {},
            schedule=schedule,
        )

    @property
    def has_server(self) -> bool:
        """Return whether queries may have been answered beside each other."""
        return bool(self.record.generation or self.record.served)

    @property
    def users(self) -> int | None:
        """Return how many users a closed loop had, None of other loads."""
        return self.record.load.concurrency if self.record.load else None

    @property
    def inferences(self) -> int:
        """Return how many samples the model took while it was timed."""
        return self.record.load.samples if self.record.load else self.record.latency.count

    def energy_run(self, windows: Windows) -> EnergyRun:
        """Return when and what was measured, as far as the energy asks."""
        timed, before, after = absolute_windows(windows)
        rhythm = queries.queries_of(self.record.samples, timed.start_ns, timed.end_ns)
        attached = self.record.environment.attached
        link = accelerator_link(self.record.runtime, attached)
        return EnergyRun(
            timed, before, after, self.inferences, rhythm, link, attached,
            counts_inferences=self.record.generation is None, draws=power_range(self.record.environment),
            frames_per_s=self.record.steady.rate_per_s if self.record.steady else None,
        )  # fmt: skip

    def traces(self) -> list[SensorTrace]:
        """Return what the power sensors read."""
        if self.record.windows is None:
            return []
        series = {item.name: item for item in self.record.samples}
        start_ns = self.record.windows.timed_start_ns
        return [unpack_trace(trace, series, start_ns) for trace in self.record.power_traces]
