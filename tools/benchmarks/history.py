"""The published table of what `make bench` measured, by commit and day: docs/internals/ratios.csv.

`python -m tools.benchmarks.history` adds the last run to it; `python -m tools.pictures ratios`
draws it. A row has the ratio of a benchmark, or the figure in its unit if it has no peer, with its
95% interval and its goal.
"""

import csv
import json
import sys
from typing import Any

from edgemeter.collector.charts.chart import rows_table
from tools.benchmarks.harness import ROOT

RATIOS = ROOT / "docs" / "internals" / "ratios.csv"
NUMBERS = ("value", "low", "high", "at_most", "at_least")


def published() -> list[dict[str, Any]]:
    """Return the rows that are published.

    Columns are `day`, `commit`, `benchmark`, `unit` (empty for a ratio), and numbers, which may be
    absent.
    """
    with RATIOS.open(encoding="utf-8", newline="") as file:
        return [
            row | {name: float(row[name]) if row[name] else None for name in NUMBERS}
            for row in csv.DictReader(file)
        ]


def rows_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a run, of each result that has a goal."""
    rows = []
    for result in run["results"]:
        if (goal := result["goal"]) is None:
            continue
        is_ratio = result["ratio"] is not None
        rows.append(
            {
                "day": run["day"],
                "commit": run["commit"],
                "benchmark": f"{result['name']} / {result['peer']}" if is_ratio else result["name"],
                "unit": "" if is_ratio else result["unit"],
                "value": result["ratio"] if is_ratio else result["value"],
                "low": result["low"],
                "high": result["high"],
                "at_most": goal["limit"] if goal["is_largest"] else None,
                "at_least": None if goal["is_largest"] else goal["limit"],
            }
        )
    return rows


def main() -> None:
    """Write the table again with the last run.

    A later measurement of a commit on the same day replaces the earlier one.
    """
    path = ROOT / ".bench" / "results.json"
    if not path.exists():
        sys.exit("no run of the benchmarks is here: run `make bench`")
    run = json.loads(path.read_bytes())
    if run["commit"].endswith("-dirty"):
        sys.exit(
            f"{run['commit']} had changes that no commit has: commit them, and run "
            "`make bench` again"
        )
    rows = {
        (row["day"], row["commit"], row["benchmark"]): row for row in (*published(), *rows_of(run))
    }
    RATIOS.write_text(rows_table(list(rows.values())).to_csv(), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
