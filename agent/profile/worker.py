"""The profiling process: one job on standard input, one result on standard output.

A crash of a native library ends only this process. The same inferences run without and with the
profiler, in turns.
"""

import itertools
import signal
import time
from pathlib import Path

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import loading
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.engine.job import answer_one, failure
from edgemeter.agent.profile.profiler import profiler_class, timed_calls
from edgemeter.agent.profile.report import Profile, summarise
from edgemeter.agent.sandbox.run_grant import grant_for

# In turns, so that a machine that gets warmer or busier slows both equally.
TURNS = 5
WARM_UP_QUERIES = 5
WARM_UP_S = 1.0


class ProfileJob(msgspec.Struct, frozen=True, kw_only=True):
    """A model to profile, the number of queries, and whether operators of one type share a row."""

    case: Case
    queries: int
    by_type: bool


def profile_in_child(work: ProfileJob) -> Profile:
    """Profile a model in its own process.

    Raises:
        EdgemeterError: the error of that process.
        MeasurementError: the process crashed.
    """
    advice = (
        f"the process that profiled {Path(work.case.model).name!r} on {work.case.runtime}",
        "measure it with `edgemeter run` instead",
    )
    return ask(
        "edgemeter.agent.profile.worker",
        [],
        msgspec.json.encode(work),
        Profile,
        grant_for(work.case),
        advice,
    )


def record_profile(job: ProfileJob) -> Profile:
    """Return the profile of a model's queries.

    Raises:
        EdgemeterError: profiling failed; its class says what the caller can do.
    """
    create_profiler = profiler_class(job.case.runtime)
    runtime = runtimes.create(job.case.runtime)
    try:
        model = loading.load_model(job.case, runtime)
        inputs = loading.prepare_calls(model, model.calls_of(0, job.case.seed), job.case.seed)[0]
        begin = time.monotonic()
        for count, arrays in enumerate(itertools.cycle(inputs), 1):
            model.runtime.bind(arrays)()
            if count >= WARM_UP_QUERIES and time.monotonic() - begin > WARM_UP_S:
                break
        profiler = create_profiler(job.case, model, inputs[0])
        plain_ns, profiled_ns = list[int](), list[int]()
        supply = itertools.cycle(inputs)
        for turn in range(TURNS):
            count = job.queries * (turn + 1) // TURNS - job.queries * turn // TURNS
            turn_inputs = list(itertools.islice(supply, count))
            plain_ns.extend(timed_calls(model.runtime.bind, turn_inputs))
            profiled_ns.extend(profiler.record(turn_inputs))
        return summarise(
            job.case, model, plain_ns, profiled_ns, profiler.events(), by_type=job.by_type
        )
    finally:
        runtime.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer_one(ProfileJob, record_profile, lambda error, job: failure(error, job.case))
