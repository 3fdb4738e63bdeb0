"""Makes docs/boards.md from `agent/doctor/setups.toml`, and takes a contributed run into that file.

`python -m tests.docs.boards` writes the page. `python -m tests.docs.boards BUNDLE... --by NAME` checks bundles that `edgemeter doctor
--share` wrote, keeps them in docs/trials, appends a row for each, and writes the page.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import BUNDLE_SUFFIX
from edgemeter.agent.doctor.setups import CPU, Setup, SetupTable, Trial, as_toml, read_table
from edgemeter.agent.doctor.share import trial_of_bundle
from tests.docs.reference.tables import table as markdown_table

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "agent/doctor/setups.toml"
PAGE = ROOT / "docs/boards.md"
TRIALS = ROOT / "docs/trials"
INTRODUCTION = """# What is known to work

<!-- Made from agent/doctor/setups.toml by `python -m tests.docs.boards`. -->

No Raspberry Pi, Jetson or Coral has been on our bench. This page lists which packages belong together on which board and system, and who
ran them. `edgemeter doctor` prints the commands, files and hashes for the machine it runs on.

- **Name, date**: a recorded run on that machine, linked below. It shows nothing of other versions of the packages.
- **Emulated**: a recorded run of the arm64 packages under qemu. It shows nothing of speed, sensors and accelerators.
- **Never tried**: publishers, or somebody's installer, name these packages together. Nobody has sent us a run.
"""
ACCELERATORS = """
## Accelerators

libedgetpu is the community's: it builds Google's library against TensorFlow 2.19.1, and a public installer for Raspberry Pis uses it with
ai-edge-litert 2.2.0. Hashes of Debian packages and of the Jetson AI Lab's wheels are those that public installers pin; nobody
here has fetched these files.

"""
CONTRIBUTE = """
## Contribute a row

Measure a model with the runtime, then let the board write what it ran:

<!-- not run: it shares the runs of a machine -->
```console
$ edgemeter doctor --share shared
```

Attach the bundles to an issue "A board or sensor". A row is accepted if its figures recompute from the samples and its run was measured and
is not invalid. All of it comes from the record, except your name and whether the machine was emulated.
"""
PARTS = """
## What the tests show beside that

- **Run**: the real thing ran here. **Emulated**: arm64 programs ran under qemu: install, enrol, first boot, update, power cuts.
- **Recording**: the real reader ran on what a real board or meter printed. **Imitation**: it ran against a program that plays the device by
  its documentation.

`edgemeter fleet boards` shows how each board is installed, and how far that was tested.

"""


def page(table: SetupTable) -> str:
    """Return the page."""
    accelerated = [setup for setup in table.setups if setup.accelerator != CPU]
    processors = [setup for setup in table.setups if setup.accelerator == CPU]
    trials = sorted(table.trial, key=lambda trial: (trial.on, trial.record))
    notes = [f"- {_where(setup)}, {setup.runtime}: {setup.note}\n" for setup in accelerated if setup.note]
    levels = [(name, level) for levels in table.part.values() for name, level in levels.items()]
    head = ["runtime, packages", "systems", "tried"]
    return (
        INTRODUCTION
        + ACCELERATORS
        + markdown_table(head, _rows(table, accelerated))
        + "\n"
        + "".join(notes)
        + "\n## Processors\n\n"
        + markdown_table(head, _rows(table, processors))
        + "\n## Recorded runs\n\n"
        + markdown_table(["date, by", "machine, system, Python", "runtime", "packages", "bundle"], map(_trial_row, trials))
        + CONTRIBUTE
        + PARTS
        + markdown_table(["what", "level"], levels)
    )


def _rows(table: SetupTable, setups: Sequence[Setup]) -> Iterator[tuple[str, ...]]:
    """Yield what belongs together, its systems with their Pythons, and who tried it; systems of equal packages and outcome in one row."""
    systems: dict[tuple[str, str], list[str]] = {}
    for setup in setups:
        packages = ", ".join(f"{package.name} {package.version}" for package in setup.packages) or "none known"
        key = (f"`{setup.runtime}`: {packages}", table.tried(setup))
        systems.setdefault(key, []).append(f"{_where(setup)} ({setup.python})")
    yield from ((packages, "; ".join(names), tried) for (packages, tried), names in systems.items())


def _where(setup: Setup) -> str:
    return setup.title if setup.models == ("*",) else f"{setup.board}, {setup.title}"


def _trial_row(trial: Trial) -> tuple[str, ...]:
    machine = trial.board if trial.level == "run" else f"{trial.board}, {trial.level}"
    return (
        f"{trial.on}, {trial.by}",
        f"{machine}, {trial.os}, {trial.python}",
        f"{trial.runtime}, {trial.backend}, {trial.accelerator}",
        ", ".join(f"{name} {version}" for name, version in trial.packages.items()),
        f"[{trial.record[:8]}](trials/{trial.record}{BUNDLE_SUFFIX})",
    )


def take(bundles: Sequence[Path], by: str, level: str, file: Path, trials: Path) -> list[Trial]:
    """Append the rows of bundles to `file`, and keep the bundles in the folder `trials`; return the rows.

    Raises:
        ConfigError: a bundle shows no trial, or is in the table; nothing is changed.
    """
    table = msgspec.toml.decode(file.read_bytes(), type=SetupTable)
    rows = [trial_of_bundle(bundle, by, msgspec.convert(level, Trial.__annotations__["level"])) for bundle in bundles]
    for row in rows:
        if row.record in {trial.record for trial in table.trial}:
            raise ConfigError(f"the run {row.record} is in the table: leave that bundle out")
    trials.mkdir(exist_ok=True)
    for row, bundle in zip(rows, bundles, strict=True):
        shutil.copyfile(bundle, trials / f"{row.record}{BUNDLE_SUFFIX}")
    file.write_text(f"{file.read_text()}\n{as_toml(rows)}")
    return rows


def main() -> None:
    """Take the bundles that are named, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.docs.boards", description="Take bundles into the table, and write docs/boards.md."
    )
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--by", help="who ran them")
    parser.add_argument("--level", choices=("run", "emulated"), default="run")
    options = parser.parse_args()
    if options.bundles and not options.by:
        parser.error("--by NAME: a row names who ran it")
    try:
        if options.bundles:
            take(options.bundles, options.by, options.level, FILE, TRIALS)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    PAGE.write_text(page(read_table()), encoding="utf-8")


if __name__ == "__main__":
    main()
