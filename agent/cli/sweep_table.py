"""The sweeps of a session over users or rates: a sentence each, and a table with a row a level."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, plain_digits
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.contract.load_sweep import Sweep, SweepPoint

_COLUMNS: Mapping[str, Callable[[SweepPoint], str]] = {
    "users": lambda point: ABSENT if point.concurrency is None else str(point.concurrency),
    "offered per s": lambda point: plain_digits(point.target_per_s),
    "requests/s": lambda point: plain_digits(point.requests_per_s),
    "p50 ms": lambda point: plain_digits(point.latency_p50_ms if point.output_tokens_per_s is None else None),
    "latency p90 ms": lambda point: plain_digits(point.latency_p90_ms if point.output_tokens_per_s is None else None),
    "tokens/s in all": lambda point: plain_digits(point.output_tokens_per_s),
    "a user": lambda point: plain_digits(point.user_tokens_per_s),
    "TTFT p50 ms": lambda point: plain_digits(point.ttft_p50_ms),
    "p90 ms": lambda point: plain_digits(point.ttft_p90_ms),
    "good/s": lambda point: plain_digits(point.goodput_per_s),
    "good": lambda point: ABSENT if point.good_ratio is None else f"{point.good_ratio:.0%}",
    "errors": lambda point: f"{point.error_ratio:.1%}" if point.error_ratio else ABSENT,
    "holds": lambda point: "no" if not point.holds else ABSENT if point.concurrency and point.good_ratio is None else "yes",
}


def print_sweeps(sweeps: Sequence[Sweep], console: Console) -> None:
    """Print each sweep: its sentence, and level by level the requests answered, and of text output tokens a second in all and a user."""
    for sweep in sweeps:
        print_text(console, f"sweep: {sweep.summary}")
        console.print(fitted_table(_columns(sweep), console.width))


def _columns(sweep: Sweep) -> Iterator[TableColumn]:
    for rank, (heading, text) in enumerate(_COLUMNS.items()):
        cells = [text(point) for point in sweep.points]
        if set(cells) != {ABSENT}:
            yield TableColumn(heading, cells, rank=rank // 2)
