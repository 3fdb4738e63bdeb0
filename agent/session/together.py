"""Several models that run at the same time.

Each is measured alone, then each pair and all of them at the same time, in rounds of balanced order
(AB BA BA AB ...). Every run has a fresh process, as elsewhere. Runs at the same time load and warm
up, wait for each other, and begin at one moment of the monotonic clock. Only queries that lie
wholly within the overlap count: from the latest first query to the earliest end of a last one.
"""

import itertools
import math
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.machine import clock, fingerprint
from edgemeter.agent.machine.load import read_memory
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.session import checks, session
from edgemeter.agent.session.observation import Observation
from edgemeter.agent.session.quiet import QuietMoment
from edgemeter.agent.session.run_plan import has_failed, in_round, is_worthless, planned_s
from edgemeter.agent.session.run_record import PlannedRun, SessionContext

# The time between agreement and beginning, in which inputs are bound, garbage is collected, and
# sensors start.
LEAD_S = 0.5
# The members of a group, by index, that run at the same time.
Block = tuple[int, ...]


def measure(
    suite: Suite,
    identity: session.DeviceIdentity,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    on_event: session.OnEvent,
    keep: Callable[[RunRecord], RunRecord] = lambda record: record,
) -> Generator[RunRecord | EdgemeterError, None, None]:
    """Measure a suite like `session.measure`, but cases that run together in blocks.

    Raises:
        ConfigError, UnavailableError: as in `session.measure`.
    """
    if all(case.together is None for case in suite.cases):
        yield from session.measure(suite, identity, sensors, why_no_power, on_event, keep)
        return
    refused = checks.check(suite)
    yield from checks.by_reason(suite, refused)
    groups = groups_of(case for position, case in enumerate(suite.cases) if position not in refused)
    if apart := groups.pop(None, []):
        yield from session.measure(
            replace(suite, cases=tuple(apart)), identity, sensors, why_no_power, on_event, keep
        )
    for cases in groups.values():
        started_at_ns = clock.wall_ns(time.monotonic_ns())
        context = SessionContext(
            suite.name,
            identity.device,
            identity.fleet,
            identity.role,
            fingerprint.read(),
            started_at_ns,
        )
        hashes = {case.model: checks.sha256(case.model) for case in cases}
        yield from _TogetherGroup(
            cases, hashes, context, sensors, why_no_power, on_event, keep
        ).measure()


def groups_of(cases: Iterable[Case]) -> dict[str | None, list[Case]]:
    """Return the cases by the group in which they run together.

    None has the others, and single members of a group.
    """
    listed = [*cases]
    sizes = Counter(case.together for case in listed)
    groups: dict[str | None, list[Case]] = {}
    for case in listed:
        groups.setdefault(case.together if sizes[case.together] > 1 else None, []).append(case)
    return groups


def blocks_of(members: int) -> list[tuple[int, ...]]:
    """Return the blocks of a round: each member alone, each pair, and all members."""
    return [
        block
        for size in sorted({1, 2, members})
        for block in itertools.combinations(range(members), size)
    ]


@dataclass(slots=True)
class _TogetherGroup:
    """Cases that run together.

    A run with others becomes a record at the end of its round, when its slow-down is known.
    """

    cases: Sequence[Case]
    hashes: Mapping[str, str]
    context: SessionContext
    sensors: Mapping[str, PowerSensor]
    why_no_power: str
    on_event: session.OnEvent
    keep: Callable[[RunRecord], RunRecord]
    outcomes: dict[Block, list[object]] = field(default_factory=lambda: defaultdict(list))
    quiet: QuietMoment = field(
        default_factory=lambda: QuietMoment(THIS_MACHINE, time.monotonic, interrupts.sleep)
    )
    # In the current round, the mean latency of each member alone; None if the run is invalid.
    alone_ms: dict[Neighbour, float | None] = field(default_factory=dict)
    # The peak memory of each member when it ran alone.
    peak_mb: dict[int, float] = field(default_factory=dict)
    # In the current round, the runs with others.
    waiting: list[tuple[session.RunBegins, RunRecord]] = field(default_factory=list)

    def measure(self) -> Iterator[RunRecord | EdgemeterError]:
        """Measure the blocks of all rounds.

        A block is given up if it, or a member alone, fails repeatedly.
        """
        blocks = blocks_of(len(self.cases))
        rounds = max(case.repeats or FEWEST for case in self.cases)
        total = rounds * sum(map(len, blocks))
        planned = (
            total,
            rounds
            * math.fsum(max(planned_s(self.cases[member]) for member in block) for block in blocks),
        )
        position = 1
        try:
            for number in range(rounds):
                for block in in_round(blocks, number):
                    interrupts.check()
                    parts = (block, *((member,) for member in block))
                    if not any(
                        has_failed(self.outcomes[part])
                        or any(map(is_worthless, self.outcomes[part]))
                        for part in parts
                    ):
                        yield from self._measure(block, number, position, planned)
                    position += len(block)
                yield from self._end_round()
        except ConfigError as error:
            yield error
        finally:
            # The round may have been cut short.
            self._end_round()

    def _measure(
        self, block: Block, number: int, position: int, planned: tuple[int, float]
    ) -> Iterator[RunRecord | EdgemeterError]:
        begins, runs = [], []
        for at, member in enumerate(block, start=position):
            case, neighbours = (
                self.cases[member],
                tuple(self.cases[other].label for other in block if other != member),
            )
            begins.append(session.RunBegins(case, number, at, *planned, neighbours))
            runs.append(
                PlannedRun(case, number, case.seed + number, self.hashes[case.model], self.context)
            )
        self.on_event(begins[0])
        self.quiet.wait(self.on_event)
        try:
            if len(block) > 1:
                check_memory(
                    {self.cases[member].label: self.peak_mb.get(member, 0.0) for member in block}
                )
                records = self._at_once(runs)
                self.waiting.extend(zip(begins, records, strict=True))
                self.outcomes[block].append(records)
                return
            record = self.keep(
                session.measure_run(runs[0], self.sensors, self.why_no_power, self.on_event)
            )
        except EdgemeterError as error:
            self.outcomes[block].append(error)
            self.on_event(session.RunEnds(error))
            yield error
            return
        self.outcomes[block].append(record)
        self.peak_mb[block[0]] = record.memory.peak_mb or 0.0
        self.on_event(session.RunEnds(record))
        yield record
        if (neighbour := Neighbour.of(record.model, record.runtime, record.cpus)) in self.alone_ms:
            raise ConfigError(
                f"{runs[0].case.model} is the same model as another, in one setting: give it "
                "another name or cpus"
            )
        self.alone_ms[neighbour] = (
            record.latency.mean_ms if record.verdict.state != "invalid" else None
        )

    def _end_round(self) -> list[RunRecord | EdgemeterError]:
        """Keep the waiting runs, each with its slow-down.

        It is relative to its model alone in the same round.
        """
        waiting, self.waiting = self.waiting, []
        alone_ms, self.alone_ms = self.alone_ms, {}
        outcomes = list[RunRecord | EdgemeterError]()
        for begins, record in waiting:
            self.on_event(begins)
            mean_ms = alone_ms.get(Neighbour.of(record.model, record.runtime, record.cpus))
            ratio = record.latency.mean_ms / mean_ms if mean_ms else None
            together = record.together and msgspec.structs.replace(
                record.together, slow_down_ratio=ratio
            )
            try:
                outcomes.append(self.keep(msgspec.structs.replace(record, together=together)))
            except EdgemeterError as error:
                outcomes.append(error)
            self.on_event(session.RunEnds(outcomes[-1]))
        return outcomes

    def _at_once(self, runs: Sequence[PlannedRun]) -> list[RunRecord]:
        """Return the records of runs at the same time.

        Raises EdgemeterError if one of them failed.
        """
        idle_s = max(run.case.idle_seconds for run in runs)
        runs = [
            replace(run, case=msgspec.structs.replace(run.case, idle_seconds=idle_s))
            for run in runs
        ]
        company = Company(len(runs), idle_s if self.sensors else 0.0, Sampler(self.sensors))
        jobs = [
            msgspec.structs.replace(session.run_job(run, self.sensors), meets=True, accuracy=False)
            for run in runs
        ]

        def measured(at: int) -> RunRecord:
            served = partial(session.served_here, Path(runs[at].case.model))
            observation = Observation({}, served=served, neighbours=company.processes)
            # A line of progress has room for one run.
            on_event = self.on_event if at == 0 else lambda _: None
            execute = partial(company.execute, at, jobs[at])
            return session.observed_run(
                runs[at], observation, company.sampler, self.why_no_power, on_event, execute
            )

        return company.run(measured)


def check_memory(peaks_mb: Mapping[str, float], machine: Machine = THIS_MACHINE) -> None:
    """Raise UnavailableError if models with these peaks do not fit into the memory together.

    The peaks are by name.
    """
    needed_mb, free_mb = sum(peaks_mb.values()), read_memory(machine).available_mb
    if free_mb is not None and needed_mb > free_mb:
        parts = ", ".join(f"{name} {peak_mb:,.0f} MB" for name, peak_mb in peaks_mb.items())
        raise UnavailableError(
            f"not enough memory to run them together ({parts}; {free_mb:,.0f} MB are available): "
            "end other programs, or use smaller models"
        )


class Company:
    """Runs at the same time, each in a thread and a process.

    They wait for each other before and after timing. If one fails, all end.
    """

    def __init__(self, runs: int, idle_s: float, sampler: Sampler) -> None:
        self.sampler = sampler
        self._idle_s = idle_s
        self._window = Window(0, 0)
        self._barrier = threading.Barrier(runs, action=self._agree)
        self._encounters: list[job.Encounter] = []
        self._pids: list[int | None] = [None] * runs
        self._members: dict[int, Neighbour] = {}

    def processes(self) -> set[int]:
        """Return the processes of all runs that have reported."""
        return {pid for pid in self._pids if pid is not None}

    def run(self, measured: Callable[[int], RunRecord]) -> list[RunRecord]:
        """Return the record of each run.

        Raises the error of the first that fails, once all have ended.
        """
        with ThreadPoolExecutor(len(self._pids), thread_name_prefix="together") as pool:
            futures = [pool.submit(measured, at) for at in range(len(self._pids))]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                # Ctrl-C ends them too.
                self._barrier.abort()
                for pid, future in zip(self._pids, futures, strict=True):
                    if pid is not None and not future.done():
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
        for error in filter(None, (future.exception() for future in finished)):
            is_expected = isinstance(error, EdgemeterError)
            raise (
                type(error)(f"{error}; the runs at the same time do not count")
                if is_expected
                else error
            )
        return [future.result() for future in futures]

    def execute(self, at: int, work: job.RunJob, follow: isolation.Follow) -> job.MeasuredRun:
        """Measure one of the runs.

        The barriers keep inspections of the machine before the first start and after the last end.
        """

        def noted(event: job.Event, pid: int) -> None:
            self._pids[at] = pid
            if self._barrier.broken:
                raise threading.BrokenBarrierError
            follow(event, pid)

        try:
            self._barrier.wait()
            measured = isolation.run_isolated(work, noted, self._meet)
            self._members[at] = Neighbour.of(measured.model, measured.runtime, measured.cpus)
            self._barrier.wait()
        finally:
            self.sampler.stop()
        neighbours = tuple(self._members[other] for other in sorted(self._members) if other != at)
        return msgspec.structs.replace(measured, together=Together(neighbours=neighbours))

    def _meet(self, encounter: job.Encounter) -> Window:
        self._encounters.append(encounter)
        self._barrier.wait()
        return self._window

    def _agree(self) -> None:
        """Set the window for all runs, when all have arrived."""
        encounters, self._encounters = self._encounters, []
        if timed := [encounter.timed for encounter in encounters if encounter.timed is not None]:
            self._window = Window(
                max(window.start_ns for window in timed), min(window.end_ns for window in timed)
            )
        elif any(encounter.seconds or encounter.queries_s for encounter in encounters):
            # With the others, each may be as many times slower as there are runs.
            seconds = max(
                max(encounter.seconds, len(encounters) * encounter.queries_s)
                for encounter in encounters
            )
            start_ns = time.monotonic_ns() + round((self._idle_s + LEAD_S) * 1e9)
            self._window = Window(start_ns, start_ns + round(seconds * 1e9))
            self.sampler.start()
