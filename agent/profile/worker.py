"""The process that profiles: one job on standard input, one result on standard output; a crash of a native library ends only it.

The same inferences run without and with the profiler, in turns.
"""

import itertools
import signal
import time
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.engine import loading
from edgemeter.agent.engine.job import answer_one, failure
from edgemeter.agent.profile import profiler
from edgemeter.agent.profile.profiler import ProfileJob, RecordedProfile

# In turns, so that a machine that gets warmer or busier slows both alike.
TURNS = 5
WARM_UP_QUERIES = 5
WARM_UP_S = 1.0


def record_profile(job: ProfileJob) -> RecordedProfile:
    """Return the profiler's events of a model's queries, and how long these took with and without it.

    Raises:
        EdgemeterError: the profile failed; its class shows what the caller can do.
    """
    event_profiler = profiler.create(job.case.runtime)
    runtime = runtimes.create(job.case.runtime)
    try:
        model = loading.load_model(job.case, runtime)
        inputs = loading.prepare_calls(model, model.calls_of(0, job.case.seed), job.case.seed).calls
        begin = time.monotonic()
        for count, arrays in enumerate(itertools.cycle(inputs), 1):
            model.runtime.bind(arrays)()
            if count >= WARM_UP_QUERIES and time.monotonic() - begin > WARM_UP_S:
                break
        event_profiler.open(job.case, model)
        plain_ns: list[int] = []
        profiled_ns: list[int] = []
        supply = itertools.cycle(inputs)
        for turn in range(TURNS):
            count = job.queries * (turn + 1) // TURNS - job.queries * turn // TURNS
            turn_inputs = list(itertools.islice(supply, count))
            plain_ns.extend(profiler.timed_calls(model.runtime.bind, turn_inputs))
            profiled_ns.extend(event_profiler.record(turn_inputs))
        return RecordedProfile(
            model=Path(job.case.model).name,
            runtime=job.case.runtime,
            package=model.loaded.package,
            version=model.loaded.version,
            backend=model.loaded.backend,
            threads=job.case.threads,
            data=model.data.name if model.data else "noise",
            plain_ns=plain_ns,
            profiled_ns=profiled_ns,
            events=event_profiler.events(),
        )
    finally:
        runtime.close()


def main() -> None:
    """Profile the job on standard input, and write the answer to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer_one(ProfileJob, record_profile, lambda error, job: failure(error, job.case))


if __name__ == "__main__":
    main()
