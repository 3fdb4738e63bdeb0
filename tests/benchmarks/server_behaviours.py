"""Servers as they are met, ours beside their own logs: `python -m tests.benchmarks.server_behaviours [--json] [NAME...]`.

Each line is a behaviour of a scripted server in a process of its own, measured as a run, and the means of the same queries by its log. It
agrees where tokens are equal, TTFT within 2% or 0.5 ms, TPOT within 2% or 0.02 ms; where the log has times and we have none, why not.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fixtures.played_behaviour import Played, play
from tests.fixtures.server_behaviours import BEHAVIOURS

QUERIES = 11
AGREE_RATIO, AGREE_MS = 0.02, {"ttft_ms": 0.5, "tpot_ms": 0.02}


def row(name: str) -> dict[str, Any]:
    """Return our figures of a behaviour beside those of its log."""
    with tempfile.TemporaryDirectory() as folder:
        played = play(name, Path(folder), QUERIES)
    if played.error:
        return {"behaviour": name, "outcome": played.error, "agrees": BEHAVIOURS[name].detail in played.error}
    return {"behaviour": name} | _figures(played)


def _figures(played: Played) -> dict[str, Any]:
    generation, logged = played.generation, played.logged()
    lengths = generation.output_lengths
    log_tokens = sum(answer.tokens for answer in logged) / len(logged)
    figures: dict[str, Any] = {
        "tokens": lengths and lengths.mean_tokens,
        "log_tokens": log_tokens,
        "ttft_ms": generation.ttft and generation.ttft.mean_ms,
        "log_ttft_ms": played.log_ttft_ms(),
        "tpot_ms": generation.tpot and generation.tpot.mean_ms,
        "log_tpot_ms": played.log_tpot_ms(),
        "failed": ", ".join(f"{kind}: {count}" for kind, count in generation.failures.items()),
        "outcome": generation.streaming_reason or ", ".join(sorted(played.rules)),
    }
    pairs = [("ttft_ms", "log_ttft_ms"), ("tpot_ms", "log_tpot_ms")]
    figures["agrees"] = figures["tokens"] == log_tokens and (
        bool(generation.streaming_reason) or all(_alike(figures[mine], figures[log], AGREE_MS[mine]) for mine, log in pairs)
    )
    return figures


def _alike(mine: float | None, logged: float | None, within_ms: float) -> bool:
    if mine is None or logged is None:
        return mine is logged
    return abs(mine - logged) <= max(AGREE_RATIO * logged, within_ms)


def main(arguments: Sequence[str]) -> None:
    """Play the behaviours named, or all, and print a table; with --json the rows."""
    names = [name for name in arguments if name != "--json"] or list(BEHAVIOURS)
    rows = [row(name) for name in names]
    if "--json" in arguments:
        print(json.dumps(rows, indent=2))
        return
    columns = dict.fromkeys(key for figures in rows for key in figures)
    table = Table(*columns)
    for figures in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value := figures.get(key, ""), float) else str(value) for key in columns))
    Console(width=200).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
