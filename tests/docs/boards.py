"""Makes docs/boards.md from `agent/doctor/setups.toml`, and takes a contributed run into that file.

`python -m tests.docs.boards` writes the page. `python -m tests.docs.boards BUNDLE... --by NAME` checks bundles that `edgemeter doctor
--share` wrote, keeps them in docs/trials, appends a row for each, and writes the page.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import BUNDLE_SUFFIX
from edgemeter.agent.doctor.setups import CPU, Setup, SetupPackage, SetupTable, Trial, as_toml, read_table
from edgemeter.agent.doctor.share import trial_of_bundle

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "agent/doctor/setups.toml"
PAGE = ROOT / "docs/boards.md"
TRIALS = ROOT / "docs/trials"
INTRODUCTION = """# What is known to work

<!-- Made from agent/doctor/setups.toml by `python -m tests.docs.boards`: change that file, not this page. -->

No Raspberry Pi, Jetson or Coral has been on our bench. This page lists which packages belong together on which board and system,
and who ran them. *Never tried* means that nobody has sent us a run. `edgemeter doctor` gives the commands for the machine it runs on.

| tried | what it shows | what it does not show |
|---|---|---|
| name, date | a recorded run on that machine; its bundle is linked below | other versions of the packages |
| emulated | a recorded run of the arm64 packages under qemu, on no board | speed, sensors, accelerators |
| never tried | that their publishers, or somebody's installer, name these packages together | that they run |
"""
ACCELERATORS = """
## Accelerators

libedgetpu is the community's: it builds Google's library against TensorFlow 2.19.1, and a public installer for Raspberry Pis uses that
package with ai-edge-litert 2.2.0. The SHA-256 of Debian packages and of the Jetson AI Lab's wheels are those that public installers pin;
nobody here has fetched these files. Those of other wheels are the package index's. Where none stands, ask the publisher.
"""
CONTRIBUTE = """
## Contribute a row

Measure a model with the runtime, then let the board write what it ran:

<!-- not run: it shares the runs of a machine -->
```console
$ edgemeter doctor --share shared
```

It writes a bundle of the newest run of each set-up, with the record and its raw samples, and prints the rows that follow from them.
Attach the bundles to an issue "A board or sensor". A row is taken only from a bundle whose figures recompute from its samples and whose
run was measured and is not invalid. All of a row comes from the record, except the contributor's name and whether the machine was emulated.

<!-- not run: changes the table -->
```console
$ python -m tests.docs.boards shared/*.edgemeter --by NAME
```
"""
PARTS = """
## What the tests show beside that

| word | what it shows | what it does not show |
|---|---|---|
| run | the real thing ran here | - |
| emulated | arm64 programs ran under qemu: install, enrol, first boot, update, power cuts | speed, sensors, accelerators |
| recording | the real reader ran on what a real board or meter printed | that the board still prints it |
| imitation | the real reader ran against a program that plays the device by its documentation | that the documentation is right |

How each board is installed, and how far that was tested, is data: `edgemeter fleet boards`.
"""


def page(table: SetupTable) -> str:
    """Return the page."""
    accelerated = [setup for setup in table.setups if setup.accelerator != CPU]
    processors = [setup for setup in table.setups if setup.accelerator == CPU]
    trials = "".join(_trial_row(trial) for trial in sorted(table.trial, key=lambda trial: (trial.on, trial.record)))
    return (
        INTRODUCTION
        + ACCELERATORS
        + "\n| board and system | Python | accelerator | runtime | packages | tried |\n|---|---|---|---|---|---|\n"
        + "".join(_setup_row(table, setup, setup.accelerator) for setup in accelerated)
        + "".join(_commands(setup) for setup in accelerated)
        + "\n## Processors\n\n| board and system | Python | accelerator | runtime | packages | tried |\n|---|---|---|---|---|---|\n"
        + "".join(_setup_row(table, setup, "none") for setup in processors)
        + "\n## Recorded runs\n\n| date | by | machine | system | Python | runtime | accelerator | packages | bundle |\n"
        + f"|---|---|---|---|---|---|---|---|---|\n{trials}"
        + CONTRIBUTE
        + PARTS
        + "".join(_part(kind, levels) for kind, levels in table.part.items())
    )


def _setup_row(table: SetupTable, setup: Setup, accelerator: str) -> str:
    packages = "<br>".join(f"{package.name} {package.version}" for package in setup.packages) or "none known"
    return f"| {_where(setup)} | {setup.python} | {accelerator} | `{setup.runtime}` | {packages} | {table.tried(setup)} |\n"


def _where(setup: Setup) -> str:
    return setup.title if setup.models == ("*",) else f"{setup.board}, {setup.title}"


def _commands(setup: Setup) -> str:
    lines = [f"\n### {_where(setup)}: {setup.accelerator}, {setup.runtime}\n"]
    lines += [f"- {_package_text(package)}" for package in setup.packages]
    if setup.install:
        commands = "".join(f"$ {command}\n" for command in setup.install)
        lines.append(f"\n<!-- not run: needs the board -->\n```console\n{commands}```")
    if setup.note:
        lines.append(f"\n{setup.note}" if setup.packages else setup.note)
    return "\n".join(lines) + "\n"


def _package_text(package: SetupPackage) -> str:
    file = f": `{package.file}`" if package.file else ""
    digest = f", SHA-256 `{package.sha256}`" if package.sha256 else ""
    return f"`{package.name}` {package.version}, from {package.source}{file}{digest}"


def _trial_row(trial: Trial) -> str:
    packages = "<br>".join(f"{name} {version}" for name, version in trial.packages.items())
    machine = trial.board if trial.level == "run" else f"{trial.board}, {trial.level}"
    bundle = f"[{trial.record[:8]}](trials/{trial.record}{BUNDLE_SUFFIX})"
    cells = (
        str(trial.on),
        trial.by,
        machine,
        trial.os,
        trial.python,
        f"{trial.runtime}, {trial.backend}",
        trial.accelerator,
        packages,
        bundle,
    )
    return f"| {' | '.join(cells)} |\n"


def _part(kind: str, levels: dict[str, str]) -> str:
    rows = "".join(f"| {name} | {level} |\n" for name, level in levels.items())
    return f"\n### {kind}\n\n| what | level |\n|---|---|\n{rows}"


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
