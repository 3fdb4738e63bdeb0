"""`python -m tests.benchmarks.opened_files LOG ARGUMENTS`: the command line with ARGUMENTS, which notes in LOG each file that is opened.

The process that measures is started the same way, and without its sandbox, in which it could write no log. Python reports what it opens;
libraries that the loader opens are read from the process's own map.
"""

import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LOG = "BENCHMARK_OPENED"
_MODULE = "tests.benchmarks.opened_files"


def of_a_run(command: Sequence[str], environment: Mapping[str, str]) -> set[Path]:
    """Return the files that a run's processes open, by `python -m edgemeter.agent.cli.main ARGUMENTS` (`command`)."""
    with tempfile.TemporaryDirectory() as folder:
        noting = [sys.executable, "-m", _MODULE, folder, *command[command.index("-m") + 2 :]]
        # The process that measures does not look for modules in the working directory.
        environment = {**environment, "PYTHONPATH": str(ROOT)}
        subprocess.run(noting, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        logs = list(Path(folder).iterdir())
        return {Path(path) for log in logs for path in json.loads(log.read_text())}


def _note(folder: str) -> None:
    """Write all that this process opens into a file in `folder`, when it ends."""
    opened: set[str] = set()

    def follow(event: str, values: tuple[object, ...]) -> None:
        if event == "open" and isinstance(values[0], (str, bytes)):
            opened.add(os.path.abspath(os.fsdecode(values[0])))  # noqa: PTH100 - an audit hook, which pathlib would call

    def write() -> None:
        mapped = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if " /" in line}
        (Path(folder) / str(os.getpid())).write_text(json.dumps(sorted(opened | mapped)))

    # What was imported up to here is not reported any more.
    opened.update(path for module in sys.modules.values() if (path := getattr(module, "__cached__", None)))
    sys.addaudithook(follow)
    atexit.register(write)


def main(first: str, *arguments: str) -> None:
    """Run the command line, or as its START of the process that measures (a policy in place of the log) that process."""
    if folder := os.environ.get(_LOG):
        _note(folder)
        module, *sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    _note(first)
    from edgemeter.agent.cli.main import main as command_line  # noqa: PLC0415 - it is to be noted
    from edgemeter.agent.sandbox import policy  # noqa: PLC0415 - as above

    os.environ[_LOG] = first
    policy.START = _MODULE
    command_line(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
