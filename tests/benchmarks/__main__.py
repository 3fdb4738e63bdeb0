"""`make bench`: our figures beside those of peers and bare limits in the same run, within 15 minutes on two cores.

`make bench ARGS=delivery` runs one part, `ARGS='loop drain'` several, `ARGS=--full` also what takes long: a ledger of a million runs.
`python -m tests.benchmarks energy` is a nightly test by itself, of how often the intervals of energies hold the truth.
A line ends when the interval of its ratio decides; where others disturb, pairs are measured again until its time is up. Each result is
printed as it comes; all of them go to .bench/results.json and .bench/results.md. What was timed in pairs is kept as records of
ratios in .bench/history, by commit and day; of three days each:

    edgemeter compare .bench/history/OLD .bench/history/NEW --fail-on slower:5%
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

from tests.benchmarks import energy, history
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, as_rows, this_machine

RESULTS = ROOT / ".bench"


@dataclass(frozen=True, slots=True)
class Part:
    """A module and its function that yields comparisons, and the share of the time that its lines have."""

    module: str
    takes_s: float
    is_long: bool = False
    function: str = "comparisons"


PARTS = {
    "worlds": Part("worlds", 60),
    "sessions": Part("worlds", 60, function="sessions"),
    "loop": Part("engine", 75),
    "litert-benchmark": Part("engine", 90, function="beside_litert_benchmark"),
    "coco": Part("coco", 60),
    "vision": Part("vision", 24),
    "generation": Part("generation", 15),
    "delivery": Part("delivery", 95),
    "drain": Part("influx", 30),
    "questions": Part("ledger_size", 90),
    "million": Part("ledger_size", 900, is_long=True, function="of_a_million"),
}


def main(arguments: list[str]) -> int:
    """Run the chosen parts; 1 where a goal was missed for sure."""
    if arguments[:1] == ["energy"]:
        return energy.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--full", action="store_true", help="also the parts that take long")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no such part {unknown[0]!r}: choose of {', '.join(PARTS)}")
    names = options.parts or [name for name, part in PARTS.items() if options.full or not part.is_long]
    begun_s = time.monotonic()
    results = _run(names)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    took_s = time.monotonic() - begun_s
    _write(results, commit, took_s)
    print(f"\n{took_s / 60:.1f} min; written to {RESULTS.name}/results.json, results.md and history/{commit}", file=sys.stderr)
    return 1 if any(result.verdict == "missed" for result in results) else 0


def _run(names: list[str]) -> list[Comparison]:
    results: list[Comparison] = []
    begun_s, passed_s, whole_s = time.monotonic(), 0.0, sum(PARTS[name].takes_s for name in names)
    for number, name in enumerate(names, 1):
        # This machine's pace so far is the best guess at what is left.
        pace = (time.monotonic() - begun_s) / passed_s if passed_s else 1.0
        left_min = pace * (whole_s - passed_s) / 60
        print(f"[{number}/{len(names)}] {name}, about {left_min:.0f} min left", file=sys.stderr, flush=True)
        part_s = time.monotonic()
        try:
            for result in _comparisons(name):
                results.append(result)
                print(f"    {_line(result)}", file=sys.stderr, flush=True)
        except LeftOutError as error:
            print(f"    left out: {error}", file=sys.stderr, flush=True)
        print(f"    took {time.monotonic() - part_s:.0f} s", file=sys.stderr, flush=True)
        passed_s += PARTS[name].takes_s
    return results


def _comparisons(name: str) -> Iterable[Comparison]:
    # Late, so that a part alone needs only its own libraries.
    part = PARTS[name]
    results: Iterable[Comparison] = getattr(import_module(f"tests.benchmarks.{part.module}"), part.function)()
    return results


def _line(result: Comparison) -> str:
    if result.ratio is None:
        return f"{result.name}: {result.ours:.4g} {result.unit}"
    goal = f"; {result.goal}: {result.verdict}" if result.goal else ""
    pairs = f"; {_pairs(result)}" if result.pairs else ""
    return f"{result.name}: {result.ours:.4g} {result.unit} / {result.peer} {result.peer_value:.4g} = {_ratio(result)}{goal}{pairs}"


def _ratio(result: Comparison) -> str:
    bounds = "" if result.ratio_low is None else f" ({result.ratio_low:.4f} to {result.ratio_high:.4f})"
    return "" if result.ratio is None else f"{result.ratio:.4f}{bounds}"


def _pairs(result: Comparison) -> str:
    repeated = f", {result.repeated} more disturbed" if result.repeated else ""
    return f"{result.pairs} pairs{repeated}" if result.pairs else ""


def _cells(result: Comparison) -> tuple[str, ...]:
    peer_value = "" if result.peer_value is None else f"{result.peer_value:.4g} {result.unit}"
    value = f"{result.ours:.4g} {result.unit}"
    return result.name, value, result.peer or "", peer_value, _ratio(result), _pairs(result), result.goal or "", result.verdict


HEADINGS = ("benchmark", "ours", "peer", "peer's", "ratio (95%)", "pairs", "goal", "")


def _write(results: list[Comparison], commit: str, took_s: float) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "results.json").write_text(json.dumps({"commit": commit, "took_s": took_s, "results": as_rows(results)}, indent=2) + "\n")
    rows = [f"| {' | '.join(cells)} |" for cells in (HEADINGS, ("---",) * len(HEADINGS), *map(_cells, results))]
    (RESULTS / "results.md").write_text("\n".join([f"{commit}, {this_machine()}, {took_s / 60:.1f} min", "", *rows, ""]))
    history.write(RESULTS / "history" / commit / f"{time.strftime('%Y-%m-%d', time.gmtime())}.json", results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
