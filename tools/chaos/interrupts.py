"""Interrupts a command at random moments, and counts what it leaves.

Usage: `python -m tools.chaos.interrupts --count 1000 -- run model.tflite`. Each time the command
has to end within two seconds with its status, and to leave no process and no temporary folder.
`--user` runs it as another user, `--cold` without bytecode. Before the command's first line, Python
itself ends as it likes: with a traceback, by the signal.
"""

import argparse
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

EDGEMETER = (sys.executable, "-m", "edgemeter.agent.cli")
STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143}
END_S, LONGEST_S, SPREAD_S = 2.0, 30.0, 5.0
# The command prints nothing before its first line, which sets its handlers.
HANDLERS_S = 60.0


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The end of a command after a signal at `at_s` of its run.

    It includes what the command has left after half a second.
    """

    at_s: float
    status: int
    seconds: float
    processes: tuple[str, ...]
    folders: tuple[str, ...]
    output: str

    def faults(self, number: signal.Signals, end_s: float = END_S) -> list[str]:
        """Return what is wrong with it."""
        named = {
            f"status {self.status}": self.status != STATUSES[number],
            f"took {self.seconds:.1f} s": self.seconds > end_s,
            f"left {', '.join(self.processes)}": bool(self.processes),
            f"left {', '.join(self.folders)}": bool(self.folders),
            f"printed {self.output[-600:]!r}": "Traceback" in self.output
            or "Exception ignored" in self.output
            or self.status < 0,
        }
        return [text for text, is_fault in named.items() if is_fault]


def interrupt(
    words: list[str],
    home: Path,
    number: signal.Signals,
    spread_s: float,
    user: str | None = None,
    *,
    is_cold: bool = False,
) -> Interrupted:
    """Start `edgemeter WORDS`, interrupt it by a signal, and wait for its end.

    The signal is sent at a moment of the first `spread_s` after its first line.
    """
    scratch = home / "tmp"
    scratch.mkdir(parents=True)
    # The mark reaches each process below it, also in a sandbox.
    mark = f"OMP_INTERRUPTED={home.name}-{os.getpid()}-{time.monotonic_ns()}"
    variables = {
        "EDGEMETER_HOME": str(home / "home"),
        "EDGEMETER_RUN_LOCK": "run.lock",
        "TMPDIR": str(scratch),
        "HOME": str(home),
    }
    variables |= (
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(home / "none")}
        if is_cold
        else {}
    )
    environment = {**os.environ, **variables, **dict([mark.split("=", 1)])}
    if user is not None:
        for folder in (home, scratch):
            shutil.chown(folder, user)
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    process = subprocess.Popen(
        [*EDGEMETER, *words], env=environment, stdin=subprocess.DEVNULL, stdout=output,
        stderr=output, start_new_session=True,
        user=user, group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [], cwd=home,
    )  # fmt: skip
    try:
        _wait_for_handlers(process.pid)
        at_s = random.uniform(0, spread_s)  # noqa: S311 - a moment, no secret
        time.sleep(at_s)
        sent_s = time.monotonic()
        process.send_signal(number)
        try:
            status = process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            status = -1
        seconds = time.monotonic() - sent_s
        time.sleep(0.5)
        processes = _marked(mark)
    finally:
        process.kill()
        process.wait()
    output.seek(0)
    text = output.read().decode(errors="replace")
    output.close()
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    folders = tuple(path.name for path in scratch.iterdir())
    return Interrupted(at_s, status, seconds, tuple(processes.values()), folders, text)


def _wait_for_handlers(pid: int) -> None:
    """Return once the process handles SIGTERM, which Python does not do by itself; or has ended."""
    ends_s = time.monotonic() + HANDLERS_S
    while time.monotonic() < ends_s:
        handled = next(
            (
                line
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("SigCgt:")
            ),
            "SigCgt: 0",
        )
        if int(handled.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)
    raise TimeoutError(f"the command did not begin within {HANDLERS_S:.0f} s")


def _marked(mark: str) -> dict[int, str]:
    """Return the commands of the processes that have the mark in their environment, by pid."""
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                commands[int(folder.name)] = (
                    (folder / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")[:120]
                )
        except OSError:
            continue
    return commands


def main() -> int:
    """Interrupt the command again and again; print what was wrong, and return 1 if anything was."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--signal", default="SIGINT", choices=[number.name for number in STATUSES])
    parser.add_argument(
        "--seconds",
        type=float,
        default=SPREAD_S,
        help="the moments are in this time after the first line",
    )
    parser.add_argument("--user")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("words", nargs="+")
    options = parser.parse_args()
    # A shell that runs this in its background hands down an ignored Ctrl-C, which the command would
    # ignore too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    number = signal.Signals[options.signal]
    statuses, seconds, wrong = Counter[int](), [0.0], 0
    with tempfile.TemporaryDirectory(prefix="edgemeter-interrupts-") as name:
        if options.user is not None:
            shutil.chown(name, options.user)
        for index in range(options.count):
            home = Path(name) / str(index)
            ended = interrupt(
                options.words, home, number, options.seconds, options.user, is_cold=options.cold
            )
            statuses[ended.status] += 1
            seconds.append(ended.seconds)
            if faults := ended.faults(number):
                wrong += 1
                print(f"{index}: after {ended.at_s:.2f} s: {'; '.join(faults)}", flush=True)
            shutil.rmtree(home)
    print(
        f"{options.count} interrupts: {wrong} wrong, statuses {dict(statuses)}, the longest took "
        f"{max(seconds):.2f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
