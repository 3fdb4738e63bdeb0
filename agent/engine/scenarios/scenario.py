"""Scenarios: how queries come. The table of names; each is one file beside this."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgemeter.agent.engine.job import Window
from edgemeter.agent.engine.scenarios import multi_stream, offline, poisson, single_stream
from edgemeter.agent.engine.scenarios.timing import Plan, Subject, Timed


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way for queries to come; throughput counts over the whole window, or only over the time that calls took.

    `seconds` tells about how long a plan will take.
    """

    run: Callable[[Subject, Plan], Timed]
    over_window: bool
    seconds: Callable[[Plan], float]


SCENARIOS: Mapping[str, Scenario] = {
    "single_stream": Scenario(single_stream.run, over_window=False, seconds=single_stream.seconds),
    "multi_stream": Scenario(multi_stream.run, over_window=False, seconds=single_stream.seconds),
    "offline": Scenario(offline.run, over_window=True, seconds=offline.seconds),
    "poisson": Scenario(poisson.run, over_window=True, seconds=poisson.seconds),
}


def window(name: str, timed: Timed) -> Window:
    """Return the timed part: from the first query, or where the whole window counts from its beginning, to the end of the last."""
    return Window(timed.begin_ns if SCENARIOS[name].over_window else int(timed.starts_ns[0]), timed.end_ns)


def throughput_per_s(name: str, timed: Timed, samples: int) -> float:
    """Return the samples a second of what was timed, `samples` in all."""
    spent_ns = timed.end_ns - timed.begin_ns if SCENARIOS[name].over_window else int(timed.latency_ns.sum())
    return samples * 1e9 / max(spent_ns, 1)
