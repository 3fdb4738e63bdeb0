"""Several models at once: each alone, then each pair and all of them at the same time, in rounds of balanced order (AB BA BA AB ...).

Every run has a fresh process, as elsewhere. Runs at the same time load and warm up, wait for each other, and begin at one moment of the
monotonic clock. Only queries that lie wholly within the overlap count: from the latest first query to the earliest end of a last one.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.agent.contract.suite import Case, Suite, blocks_of, groups_of
from edgemeter.agent.energy.sampler import Sampler
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import isolation, job
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.session import session
from edgemeter.agent.session.hopeless import by_reason, has_failed
from edgemeter.agent.session.observation import Observation
from edgemeter.agent.session.run_record import PlannedRun, SessionContext

# From the agreement to the beginning: inputs are bound, garbage is collected, sensors are started.
LEAD_S = 0.5
# The members of a group, by their places, that run at the same time; one alone.
Block = tuple[int, ...]


def measure(
    suite: Suite,
    identity: session.DeviceIdentity,
    sensors: Mapping[str, PowerSensor],
    why_no_power: str,
    on_event: session.OnEvent,
    keep: Callable[[RunRecord], RunRecord] = lambda record: record,
) -> Generator[RunRecord | EdgemeterError, None, None]:
    """Measure a suite as `session.measure` does, and of cases that are to run together their blocks.

    Raises:
        ConfigError, UnavailableError: as `session.measure`.
    """
    if all(case.together is None for case in suite.cases):
        yield from session.measure(suite, identity, sensors, why_no_power, on_event, keep)
        return
    refused = session.check(suite)
    yield from by_reason(suite, refused)
    groups = groups_of(case for position, case in enumerate(suite.cases) if position not in refused)
    if apart := groups.pop(None, []):
        yield from session.measure(replace(suite, cases=tuple(apart)), identity, sensors, why_no_power, on_event, keep)
    for cases in groups.values():
        session.check_power(replace(suite, cases=tuple(cases)), sensors)
        context = SessionContext(suite.name, identity.device, identity.fleet, None, fingerprint.read())
        hashes = {case.model: session.sha256(case.model) for case in cases}
        yield from _TogetherGroup(cases, context, sensors, why_no_power, on_event, keep, hashes).measure()


@dataclass(slots=True)
class _TogetherGroup:
    """Cases that run together, and what came of their blocks so far.

    A run beside others becomes a record at the end of its round: its slow-down is known only then.
    """

    cases: Sequence[Case]
    context: SessionContext
    sensors: Mapping[str, PowerSensor]
    why_no_power: str
    on_event: session.OnEvent
    keep: Callable[[RunRecord], RunRecord]
    hashes: Mapping[str, str]
    outcomes: dict[Block, list[object]] = field(default_factory=dict)
    # Mean latency in ms of each run alone that counts, by member and round.
    alone_ms: dict[tuple[int, int], float] = field(default_factory=dict)
    # Runs beside others whose round goes on: the member, the event of their beginning, and what was measured.
    waiting: list[tuple[int, session.RunBegins, RunRecord]] = field(default_factory=list)
    # Which member is called so in records.
    members: dict[Neighbour, int] = field(default_factory=dict)

    def measure(self) -> Iterator[RunRecord | EdgemeterError]:
        """Measure all blocks of all rounds; one that fails again and again, or a member of which does alone, is measured no more."""
        from edgemeter.agent.session.in_turn import order_of  # noqa: PLC0415 - it brings all comparisons, and most suites have no such group

        order = order_of(blocks_of(len(self.cases)), max(case.repeats for case in self.cases), with_scoring=False)
        due = [(self.cases[member], number) for block, number in order for member in block]
        position = 1
        try:
            for _, blocks in groupby(order, key=itemgetter(1)):
                for block, number in blocks:
                    if not self._has_failed(block):
                        yield from self._measure(block, number, position, due)
                    position += len(block)
                yield from self._end_round()
        except ConfigError as error:
            yield error
        finally:
            # What was measured of a round that is cut short.
            self._end_round()

    def _has_failed(self, block: Block) -> bool:
        parts: list[Block] = [block, *((member,) for member in block)]
        return any(has_failed(self.outcomes.get(part, [])) for part in parts)

    def _measure(self, block: Block, number: int, position: int, due: Sequence[tuple[Case, int]]) -> Iterator[RunRecord | EdgemeterError]:
        begins = []
        for at, member in enumerate(block, start=position):
            neighbours = tuple(self.cases[other].label for other in block if other != member)
            begins.append(session.RunBegins(self.cases[member], number, at, len(due), due[at:], neighbours))
        self.on_event(begins[0])
        try:
            runs = [
                PlannedRun(case, number, case.seed + number, position + at, self.hashes[case.model], self.context)
                for at, case in enumerate(self.cases[member] for member in block)
            ]
            if len(block) == 1:
                records = [session.measure_run(runs[0], self.sensors, self.why_no_power, self.on_event)]
            else:
                records = self._at_once(runs)
        except EdgemeterError as error:
            self.outcomes.setdefault(block, []).append(error)
            self.on_event(session.RunEnds(error))
            yield error
            return
        self.outcomes.setdefault(block, []).append(records)
        if len(block) > 1:
            self.waiting.extend(zip(block, begins, records, strict=True))
            return
        if records[0].verdict.state != "invalid":
            self.alone_ms[block[0], number] = records[0].latency.mean_ms
        yield self._keep(records[0])
        if (twin := self.members.setdefault(Neighbour.of(records[0].model, records[0].runtime, records[0].cpus), block[0])) != block[0]:
            twins = " and ".join(self.cases[member].model for member in (twin, block[0]))
            raise ConfigError(f"{twins} are one model in one setting, which records do not tell apart: give one another name or cpus")

    def _end_round(self) -> list[RunRecord | EdgemeterError]:
        """Keep the runs beside others that wait, each with the slow-down against its model alone in the same round."""
        waiting, self.waiting = self.waiting, []
        outcomes = []
        for member, begins, record in waiting:
            self.on_event(begins)
            alone_ms = self.alone_ms.get((member, begins.repeat))
            ratio = record.latency.mean_ms / alone_ms if alone_ms else None
            together = record.together and msgspec.structs.replace(record.together, slow_down_ratio=ratio)
            outcomes.append(self._keep(msgspec.structs.replace(record, together=together)))
        return outcomes

    def _keep(self, record: RunRecord) -> RunRecord | EdgemeterError:
        outcome: RunRecord | EdgemeterError
        try:
            outcome = self.keep(record)
        except EdgemeterError as error:
            outcome = error
        self.on_event(session.RunEnds(outcome))
        return outcome

    def _at_once(self, runs: Sequence[PlannedRun]) -> list[RunRecord]:
        """Return the records of runs at the same time; raises EdgemeterError if one of them failed."""
        idle_s = max(run.case.idle_seconds for run in runs)
        changes = {"accuracy": "never", "agreement": "never", "idle_seconds": idle_s}
        runs = [replace(run, case=msgspec.structs.replace(run.case, **changes)) for run in runs]
        coolest = min((run.case for run in runs), key=lambda case: math.inf if case.start_below_c is None else case.start_below_c)
        cooled = session.cool_down(coolest, self.on_event)
        sampler = Sampler(self.sensors)
        company = Company(len(runs), idle_s if self.sensors else 0.0, sampler.start)
        observations = [
            Observation({}, served=partial(session.served_here, Path(run.case.model)), neighbours=company.processes) for run in runs
        ]
        for observation in observations:
            observation.inspect_before()
        monotonic_ns = time.monotonic_ns()
        jobs = [msgspec.structs.replace(session.run_job(run, self.sensors), meets=True) for run in runs]
        try:
            measured = company.run(jobs, [self._following(*pair) for pair in enumerate(observations)])
        finally:
            sampler.stop()
            for observation in observations:
                observation.end()
        traces = list(sampler.traces().values())
        records = []
        for at, (run, result, observation) in enumerate(zip(runs, measured, observations, strict=True)):
            observation.inspect_after()
            neighbours = tuple(
                Neighbour.of(other.model, other.runtime, other.cpus) for number, other in enumerate(measured) if number != at
            )
            together = Together(neighbours=neighbours, overlap_ms=company.window.length_ns / 1e6)
            with_company = msgspec.structs.replace(result, together=together)
            records.append(session.record_of(run, with_company, monotonic_ns, observation, traces, self.why_no_power, cooled))
        return records

    def _following(self, at: int, observation: Observation) -> isolation.Follow:
        def follow(event: job.Event, pid: int) -> None:
            observation.follow(event, pid)
            # A line of progress has room for one run.
            if at == 0:
                self.on_event(event)

        return follow


class Company:
    """Runs at the same time: they meet before and after the timed part; where one fails, all end."""

    def __init__(self, runs: int, idle_s: float, begins: Callable[[], None]) -> None:
        self.window = Window(0, 0)
        self._idle_s, self._begins = idle_s, begins
        self._barrier = threading.Barrier(runs, action=self._agree)
        self._lock = threading.Lock()
        self._events: list[job.Encounter] = []
        self._pids: list[int | None] = [None] * runs
        self._error: BaseException | None = None

    def processes(self) -> set[int]:
        """Return the processes of all runs, as far as they have reported."""
        return {pid for pid in self._pids if pid is not None}

    def run(self, jobs: Sequence[job.RunJob], follows: Sequence[isolation.Follow]) -> list[job.MeasuredRun]:
        """Return what was measured of each; raises the error of the first run that fails, once all have ended."""
        with ThreadPoolExecutor(len(jobs), thread_name_prefix="together") as pool:
            futures = [
                pool.submit(self._run, position, work, follow) for position, (work, follow) in enumerate(zip(jobs, follows, strict=True))
            ]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                # Ctrl-C ends them too.
                if not all(future.done() and future.exception() is None for future in futures):
                    self._barrier.abort()
                    self._end([pid for pid, future in zip(self._pids, futures, strict=True) if not future.done()])
        if isinstance(self._error, EdgemeterError):
            raise type(self._error)(f"{self._error}; the runs at the same time do not count") from self._error
        if self._error is not None:
            raise self._error
        return [future.result() for future in futures]

    def _run(self, position: int, work: job.RunJob, follow: isolation.Follow) -> job.MeasuredRun:
        def noted(event: job.Event, pid: int) -> None:
            self._pids[position] = pid
            if self._barrier.broken:
                raise MeasurementError("a run at the same time failed")
            follow(event, pid)

        try:
            return isolation.run_isolated(work, noted, self._meet)
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
            self._barrier.abort()
            raise

    @staticmethod
    def _end(pids: Iterable[int | None]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)

    def _meet(self, event: job.Encounter) -> Window:
        with self._lock:
            self._events.append(event)
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError as error:
            raise MeasurementError("a run at the same time failed") from error
        return self.window

    def _agree(self) -> None:
        """Set the window that all runs get, once all have come."""
        events, self._events = self._events, []
        ready = [event for event in events if isinstance(event, job.ReadyToBegin)]
        timed = [event.timed for event in events if isinstance(event, job.HasEnded)]
        if ready:
            # Beside the others each may be so many times slower.
            seconds = max(max(event.seconds, len(ready) * event.queries_s) for event in ready)
            start_ns = time.monotonic_ns() + round((self._idle_s + LEAD_S) * 1e9)
            self.window = Window(start_ns, start_ns + round(seconds * 1e9))
            self._begins()
        elif timed:
            self.window = Window(max(window.start_ns for window in timed), min(window.end_ns for window in timed))
