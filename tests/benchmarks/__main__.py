"""`make bench`: every benchmark, written to .bench/results.json and printed as a table."""

import json
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import (
    coco,
    costs,
    delivery,
    energy,
    engine,
    first_look,
    idle_agent,
    influx,
    litert_benchmark,
    loadgen,
    sensor_worlds,
    vision,
)
from tests.benchmarks.comparison import Comparison, as_rows

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".bench" / "results.json"


def main() -> int:
    """Run all benchmarks; 0 when every goal was met."""
    models = Path(os.environ.get("EDGEMETER_REALDATA") or ROOT.parent / "shared" / "realdata") / "models"
    done: list[Comparison] = []
    if models.is_dir():
        for part in (engine, loadgen, litert_benchmark, costs, coco, vision):
            done.extend(part.comparisons(models))
    else:
        print(f"engine: left out, {models} is not there (set EDGEMETER_REALDATA)", file=sys.stderr)
    done.extend(energy.comparisons())
    done.extend(sensor_worlds.comparisons())
    done.extend(delivery.comparisons())
    done.extend(influx.comparisons())
    done.extend(idle_agent.comparisons())
    done.extend(first_look.comparisons())
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(as_rows(done), indent=2) + "\n")
    table = Table("benchmark", "ours", "peer", "", "ratio", "goal")
    for one in done:
        bounds = "" if one.ratio_low is None else f"\n({one.ratio_low:.4f} .. {one.ratio_high:.4f})"
        row = (f"{one.ours:.4g} {one.unit}", one.peer, f"{one.peer_value:.4g} {one.unit}", f"{one.ratio:.4f}{bounds}")
        table.add_row(one.name, *row, f"{one.goal}: {'met' if one.met else 'missed'}{'' if one.is_sure else ', not sure'}")
    console = Console()
    # Nobody reads a pipe at 80 columns.
    (console if console.is_terminal else Console(width=200)).print(table)
    return 0 if all(one.met for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
