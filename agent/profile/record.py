"""Profiles one model in this process: the same inferences without and with the profiler, in turns."""

import itertools
import time
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.engine import loading
from edgemeter.agent.engine.loading import Model
from edgemeter.agent.profile import profiler
from edgemeter.agent.profile.job import Job, Recorded
from edgemeter.agent.runtimes import Array

# In turns, so that a machine that gets warmer or busier slows both alike.
TURNS = 5
WARM_UP_QUERIES = 5
WARM_UP_S = 1.0


def record(job: Job) -> Recorded:
    """Return what the profiler saw of a model's queries, and how long they took with and without it.

    Raises:
        EdgemeterError: by what the caller has to do about it.
    """
    found = profiler.create(job.case.runtime)
    runtime = runtimes.create(job.case.runtime)
    try:
        model = loading.load(job.case, runtime)
        inputs = loading.prepare(model, model.inputs_of(0, job.case.seed), job.case.seed)
        _warm_up(model, inputs)
        found.open(job.case, model)
        plain_ns: list[int] = []
        profiled_ns: list[int] = []
        supply = itertools.cycle(inputs)
        for turn in range(TURNS):
            count = job.queries * (turn + 1) // TURNS - job.queries * turn // TURNS
            some = list(itertools.islice(supply, count))
            plain_ns.extend(_plain(model, some))
            profiled_ns.extend(found.record(some))
        return _recorded(job, model, plain_ns, profiled_ns, found.events())
    finally:
        runtime.close()


def _warm_up(model: Model, inputs: list[list[Array]]) -> None:
    begin = time.monotonic()
    for count, one in enumerate(itertools.cycle(inputs)):
        model.runtime.bind(one)()
        if count + 1 >= WARM_UP_QUERIES and time.monotonic() - begin > WARM_UP_S:
            return


def _plain(model: Model, inputs: list[list[Array]]) -> list[int]:
    durations = []
    for one in inputs:
        call = model.runtime.bind(one)
        begin = time.monotonic_ns()
        call()
        durations.append(time.monotonic_ns() - begin)
    return durations


def _recorded(job: Job, model: Model, plain_ns: list[int], profiled_ns: list[int], events: list[profiler.Event]) -> Recorded:
    return Recorded(
        model=Path(job.case.model).name,
        package=model.loaded.package,
        version=model.loaded.version,
        backend=model.loaded.backend,
        threads=job.case.threads,
        data=model.data.name if model.data else "noise",
        plain_ns=plain_ns,
        profiled_ns=profiled_ns,
        events=events,
    )
