"""What `make bench` timed in pairs, as run records, so that `edgemeter compare` tells two commits apart like two releases of a runtime.

A round is a run: its latency is the time in which ours does what the peer does in 1 ms. A slower machine slows both and changes no ratio,
and no row of the comparison is the peer's own. What both took is kept beside the records.

`python -m tests.benchmarks.history` adds the ratios that were measured here to those that are published with the documentation. Then
`python -m tests.docs.pictures ratios` draws them.
"""

import csv
import hashlib
import json
import re
import resource
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.contract import record, record_conditions, record_figures
from edgemeter.collector.charts.chart import rows_table
from tests.benchmarks.comparison import ROOT, Comparison, as_rows
from tests.fixtures.replay_case import replay_model

# Characters that a model's name in a record cannot contain.
NO_NAME = re.compile(r"[^A-Za-z0-9._:@-]+")
MS = {"ms": 1.0, "us": 1e-3, "s": 1e3}
RATIOS = ROOT / "docs" / "internals" / "ratios.csv"
BOUNDS = ("ratio", "low", "high", "limit")


def write(path: Path, results: list[Comparison]) -> None:
    """Write `{"comparisons": [...], "runs": [record, ...]}` of what was timed in pairs; nothing where that is nothing."""
    timed = [result for result in results if result.rounds and unit_of_work_ms(result.unit, result.ours) is not None]
    if not timed:
        return
    template = _run_here()
    runs = [_run(template, result, number, *pair) for result in timed for number, pair in enumerate(result.rounds)]
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = json.dumps(as_rows(timed)).encode()
    path.write_bytes(b'{"comparisons": ' + rows + b', "runs": [' + b",\n".join(map(record.encode, runs)) + b"]}\n")


def unit_of_work_ms(unit: str, value: float) -> float | None:
    """Return the time that a time or a rate (`records/s`) is of one unit of work; None of what is neither."""
    if unit.endswith("/s"):
        return 1e3 / value
    return MS[unit] * value if unit in MS else None


def _run_here() -> record.RunRecord:
    """Return a short run on this machine: its environment and conditions are those of the benchmark."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "edgemeter.agent.cli.main", "run", str(replay_model(Path(name), 0.2))]
        completed = subprocess.run(
            [*command, "--mode", "rapid", "--power", "none", "--no-save", "--format", "json"], check=True, capture_output=True
        )
    return record.decode(json.dumps(json.loads(completed.stdout)["runs"][0]).encode())


def _run(template: record.RunRecord, result: Comparison, number: int, measured: float, peer: float) -> record.RunRecord:
    ours_ms, peer_ms = unit_of_work_ms(result.unit, measured), unit_of_work_ms(result.unit, peer)
    assert ours_ms is not None
    assert peer_ms is not None
    took_ms = ours_ms / peer_ms
    name = NO_NAME.sub(" ", f"{result.name} over {result.peer}").strip()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return msgspec.structs.replace(
        template,
        id=str(uuid.uuid4()),
        case=name,
        repeat=number,
        model=record_conditions.Model(
            name=name,
            sha256=hashlib.sha256(name.encode()).hexdigest(),
            file="",
            size_bytes=0,
            task="benchmark",
        ),
        runtime=record_conditions.RuntimeInfo(name="benchmark", package="", version="", backend="", threads=1),
        latency=record_figures.Latency(count=1, mean_ms=took_ms, max_ms=took_ms, p50_ms=took_ms),
        throughput_per_s=1e3 / took_ms,
        memory=record_figures.Memory(peak_mb=peak_mb, loaded_mb=peak_mb),
        verdict=record_conditions.Verdict(state="ok"),
        accuracy=None,
        samples=(),
    )


def published() -> list[dict[str, Any]]:
    """Return the rows that are published: `day`, `commit`, `benchmark`, and the bounds, of which a limit may be absent."""
    with RATIOS.open(encoding="utf-8", newline="") as file:
        return [row | {name: float(row[name]) if row[name] else None for name in BOUNDS} for row in csv.DictReader(file)]


def measured(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield such rows of the history in this folder; of a commit that was changed there are none."""
    for path in sorted(folder.glob("*/*.json"), key=lambda path: path.stat().st_mtime):
        if path.parent.name.endswith("-dirty"):
            continue
        for row in json.loads(path.read_bytes())["comparisons"]:
            bounds = (row["ratio"], row["ratio_low"], row["ratio_high"], row.get("limit"))
            name = f"{row['name']} / {row['peer']}"
            yield {"day": path.stem, "commit": path.parent.name, "benchmark": name, **dict(zip(BOUNDS, bounds, strict=True))}


def main() -> None:
    """Write the table again, with what was measured here; a day's later measurement of a commit replaces the earlier."""
    rows = {(row["day"], row["commit"], row["benchmark"]): row for row in (*published(), *measured(ROOT / ".bench" / "history"))}
    RATIOS.write_text(rows_table(list(rows.values())).to_csv(), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
