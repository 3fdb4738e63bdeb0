"""One line of a benchmark: our figure beside a peer's or a limit, taken in the same run, interleaved."""

import math
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from edgemeter.agent.base import run_statistics


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` is ours / peer, with its 95 % interval where it was taken in pairs; `goal` says in words what it should be.

    `is_sure` is false where the goal lies within the interval: another time the answer may be another.
    """

    name: str
    unit: str
    ours: float
    peer: str
    peer_value: float
    ratio: float
    goal: str
    machine: str
    met: bool
    ratio_low: float | None = None
    ratio_high: float | None = None
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Paired:
    """Our median, the peer's, and the ratio of neighbours with its 95 % interval over pairs."""

    ours: float
    peer: float
    ratio: float
    low: float
    high: float


def this_machine() -> str:
    """Return what the figures were taken on."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - Linux only, like the agent
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} x {len(names)}, Python {platform.python_version()}"


def interleaved(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> Paired:
    """Return what `rounds` pairs of runs say, measured in the order ours-peer-peer-ours."""
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds):
        if turn % 2:
            other = peer()
            pairs.append((ours(), other))
        else:
            mine = ours()
            pairs.append((mine, peer()))
    logs = [math.log(mine / other) for mine, other in pairs]
    interval = run_statistics.pair_interval(logs)
    if interval is None:
        message = f"{rounds} pair has no interval: ask for two and more"
        raise ValueError(message)
    return Paired(
        ours=statistics.median(mine for mine, _ in pairs),
        peer=statistics.median(other for _, other in pairs),
        ratio=math.exp(run_statistics.centre(logs)),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
    )


def at_most(name: str, unit: str, peer: str, paired: Paired, limit: float) -> Comparison:
    """Return the comparison whose ratio should be at most `limit`; whether that is sure is told by the interval."""
    return Comparison(
        name=name,
        unit=unit,
        ours=paired.ours,
        peer=peer,
        peer_value=paired.peer,
        ratio=paired.ratio,
        goal=f"ratio <= {limit:g}",
        machine=this_machine(),
        met=paired.ratio <= limit,
        ratio_low=paired.low,
        ratio_high=paired.high,
        is_sure=not paired.low <= limit < paired.high,
    )


def within(name: str, unit: str, ours: float, limit: float) -> Comparison:
    """Return the comparison of a cost with the most that it may be."""
    return Comparison(
        name=name,
        unit=unit,
        ours=ours,
        peer="limit",
        peer_value=limit,
        ratio=ours / limit,
        goal=f"<= {limit:g} {unit}",
        machine=this_machine(),
        met=ours <= limit,
    )


def as_rows(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """Return the comparisons as they are written to the results file."""
    return [asdict(comparison) for comparison in comparisons]
