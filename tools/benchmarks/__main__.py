"""`make bench`: our figures next to those of peers and bare limits in the same run.

It takes 12 minutes at most on two cores. `make bench ARGS=delivery` runs one part, `ARGS='engine
drain'` several, `ARGS=--full` also `make test` from nothing. A line ends when the interval of its
ratio decides; where others disturb, pairs are measured again until its time is up. Each result is
printed as it comes; all of them are in .bench/results.md and .bench/results.json. To publish them:

    python -m tools.benchmarks.history && python -m tools.pictures ratios
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module

from tools.benchmarks.harness import ROOT, Comparison, LeftOutError, this_machine

RESULTS = ROOT / ".bench"
# Each part is a module with a generator `comparisons()`, and for `--full` perhaps
# `long_comparisons()`; how long it takes, s.
PARTS = {
    "engine": 100,
    "coco": 100,
    "vision": 30,
    "generation": 25,
    "delivery": 105,
    "drain": 45,
    "questions": 75,
    "commands": 45,
    "footprint": 55,
    "setting_up": 130,
}
HEADINGS = ("benchmark", "ours", "peer", "peer's", "ratio (95%)", "pairs", "goal", "")


def main(arguments: list[str]) -> int:
    """Run the chosen parts; 1 where a goal was missed for sure, or a part failed."""
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--full", action="store_true", help="also the lines that take long")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no such part {unknown[0]!r}: choose of {', '.join(PARTS)}")
    names = options.parts or list(PARTS)
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    begin_s, results, failed = time.monotonic(), list[Comparison](), list[str]()
    for number, name in enumerate(names, 1):
        _talk(
            f"[{number}/{len(names)}] {name}, about "
            f"{sum(PARTS[part] for part in names[number - 1 :]) / 60:.0f} min left"
        )
        part_s = time.monotonic()
        try:
            for result in _comparisons(name, is_full=options.full):
                results.append(result)
                _talk(f"    {result}")
        except LeftOutError as error:
            _talk(f"    left out: {error}")
        except Exception:  # noqa: BLE001 - the other parts have figures too
            failed.append(name)
            _talk(traceback.format_exc())
        _talk(f"    took {time.monotonic() - part_s:.0f} s")
        _write(results, commit, time.monotonic() - begin_s)
    _talk(
        f"\n{(time.monotonic() - begin_s) / 60:.1f} min; written to {RESULTS.name}/results.md "
        "and results.json"
    )
    if failed:
        _talk(f"failed: {', '.join(failed)}")
    return 1 if failed or any(result.verdict == "missed" for result in results) else 0


def _comparisons(name: str, *, is_full: bool) -> Iterator[Comparison]:
    # Late, so that a part alone needs only its own libraries.
    module = import_module(f"tools.benchmarks.{name}")
    yield from module.comparisons()
    if is_full and hasattr(module, "long_comparisons"):
        yield from module.long_comparisons()


def _talk(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(results: list[Comparison], commit: str, took_s: float) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "commit": commit,
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": this_machine(),
        "took_s": took_s,
        "results": [asdict(result) for result in results],
    }
    (RESULTS / "results.json").write_text(json.dumps(document, indent=2) + "\n")
    rows = [
        f"| {' | '.join(cells)} |"
        for cells in (HEADINGS, ("---",) * len(HEADINGS), *(result.cells() for result in results))
    ]
    (RESULTS / "results.md").write_text(
        "\n".join([f"{commit}, {this_machine()}, {took_s / 60:.1f} min", "", *rows, ""])
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
