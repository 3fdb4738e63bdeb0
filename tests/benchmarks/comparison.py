"""One line of a benchmark: our figure beside a peer's, taken in the same run, interleaved."""

import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` is ours / peer; `goal` says in words what it should be."""

    name: str
    unit: str
    ours: float
    peer: str
    peer_value: float
    ratio: float
    goal: str
    machine: str
    met: bool


def this_machine() -> str:
    """Return what the figures were taken on."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - Linux only, like the agent
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} x {len(names)}, Python {platform.python_version()}"


def interleaved(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> tuple[float, float, float]:
    """Return our median, the peer's median, and the median of the ratios of neighbouring runs, in order ours-peer-peer-ours."""
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds):
        if turn % 2:
            other = peer()
            pairs.append((ours(), other))
        else:
            mine = ours()
            pairs.append((mine, peer()))
    return (
        statistics.median(mine for mine, _ in pairs),
        statistics.median(other for _, other in pairs),
        statistics.median(mine / other for mine, other in pairs),
    )


def as_rows(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """Return the comparisons as they are written to the results file."""
    return [asdict(comparison) for comparison in comparisons]
