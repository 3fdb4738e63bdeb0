"""What all processes of a run hold at once, every page counted once, and the processor time that they take.

A page that processes share is one page: of each file the most that one of them shares counts, beside what each has alone, so that another
program that maps the same library changes nothing. Between fork and exec a child has its parent's memory, and is left out: the processes
of a run fork only to start a program.
"""

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.benchmarks.comparison import Comparison, figure

PERIOD_S = 0.02
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ [0-9a-f]+ \S+ \d+ *(.*)")
# A process by its parts: what it imports on top of a bare interpreter, and numpy.
SESSION = ("edgemeter.agent.cli.run", "edgemeter.agent.session.together", "edgemeter.agent.ledger.own_runs")
MEASURING = ("edgemeter.agent.sandbox.confine", "edgemeter.agent.engine.job", "edgemeter.agent.engine.measure")
_ANONYMOUS = """
import importlib, pathlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(pathlib.Path("/proc/self/smaps").read_text())
"""


@dataclass(slots=True)
class Pages:
    """Bytes that a process holds of one file, or of none: alone, shared, its part of the shared ones, and what no file backs."""

    private: int = 0
    shared: int = 0
    proportional: int = 0
    anonymous: int = 0

    @property
    def file_backed(self) -> int:
        """What the kernel can drop, and read again."""
        return self.private + self.shared - self.anonymous


Mapped = Mapping[str, Pages]


@dataclass(frozen=True, slots=True)
class RunCost:
    """The highest memory of a command's processes together, what each of them held then (the first is the command), processor seconds."""

    memory_mb: float
    cpu_s: float
    processes: Sequence[Mapped] = field(repr=False)

    @property
    def anonymous_mb(self) -> float:
        """Of the memory what no file backs."""
        return sum(pages.anonymous for mapped in self.processes for pages in mapped.values()) / 1e6


def pages_of(smaps: str) -> Mapped:
    """Return what a process holds by file, the empty name for none, from its `/proc/PID/smaps`."""
    mapped: dict[str, Pages] = defaultdict(Pages)
    pages = Pages()
    for line in smaps.splitlines():
        if header := _MAPPING.fullmatch(line):
            pages = mapped[header[1] if header[1].startswith("/") else ""]
            continue
        key, _, value = line.partition(":")
        if not value.endswith(" kB"):
            continue
        size = 1024 * int(value[:-3])
        match key:
            case "Private_Clean" | "Private_Dirty":
                pages.private += size
            case "Shared_Clean" | "Shared_Dirty":
                pages.shared += size
            case "Pss":
                pages.proportional += size
            case "Anonymous":
                pages.anonymous += size
    return dict(mapped)


def held_once(processes: Collection[Mapped]) -> int:
    """Return the bytes that processes hold together: what each has alone, and what they share once."""
    private = sum(pages.private for mapped in processes for pages in mapped.values())
    of_files: dict[str, int] = defaultdict(int)
    inherited = 0
    for mapped in processes:
        for name, pages in mapped.items():
            if name:
                of_files[name] = max(of_files[name], pages.shared)
            elif pages.shared:
                # What no file backs is shared with nobody but the family.
                inherited += pages.proportional - pages.private
    return private + inherited + sum(of_files.values())


def family(pid: int) -> Iterator[int]:
    """Yield a process and what it started, without those that are still copies of what started them."""
    yield pid
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        command = process.cmdline()
        for child in process.children():
            with suppress(psutil.NoSuchProcess):
                if child.cmdline() != command:
                    yield from family(child.pid)


def cost_of(command: Sequence[str], environment: Mapping[str, str]) -> RunCost:
    """Run a command to its end and return what it cost; raises CalledProcessError where it fails."""
    highest, processes = 0, list[Mapped]()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            moment = []
            for pid in family(process.pid):
                with suppress(FileNotFoundError, ProcessLookupError):
                    moment.append(pages_of(Path(f"/proc/{pid}/smaps").read_text()))
            if (size := held_once(moment)) > highest:
                highest, processes = size, moment
            time.sleep(PERIOD_S)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    # With those of all children that were waited for.
    return RunCost(highest / 1e6, ended[2].ru_utime + ended[2].ru_stime, processes)


def lines(about: str, cost: RunCost) -> Iterator[Comparison]:
    """Yield the memory of all processes, what of it no file backs, and their processor time."""
    yield figure(f"{about}: memory of all processes", "MB", cost.memory_mb)
    yield figure(f"{about}: memory of all processes, not backed by files", "MB", cost.anonymous_mb)
    yield figure(f"{about}: processor time of all processes", "s", cost.cpu_s)


def profile(about: str, cost: RunCost) -> Iterator[Comparison]:
    """Yield what session and measuring process held by part: by file what is backed by files, by imports what is not."""
    for name, modules, mapped in zip(("session", "measuring process"), (SESSION, MEASURING), cost.processes, strict=False):
        backed: dict[str, int] = defaultdict(int)
        for path, pages in mapped.items():
            backed[_part(path)] += pages.file_backed
        for part, size in sorted(backed.items(), key=lambda row: -row[1]):
            if size >= 1e5:
                yield figure(f"{about}: {name}, files: {part}", "MB", size / 1e6)
        bare_mb, numpy_mb, imported_mb = map(_anonymous_mb, ((), ("numpy",), ("numpy", *modules)))
        all_mb = sum(pages.anonymous for pages in mapped.values()) / 1e6
        yield figure(f"{about}: {name}, not of files: bare interpreter", "MB", bare_mb)
        yield figure(f"{about}: {name}, not of files: numpy", "MB", numpy_mb - bare_mb)
        yield figure(f"{about}: {name}, not of files: our modules and what they import", "MB", imported_mb - numpy_mb)
        yield figure(f"{about}: {name}, not of files: model, samples, the rest", "MB", all_mb - imported_mb)


def _part(path: str) -> str:
    """Return the package whose file this is, or the interpreter, or the system."""
    _, in_packages, within = path.partition("/site-packages/")
    if in_packages:
        return within.partition("/")[0].removesuffix(".libs")
    if path.startswith(sys.base_prefix) or "/python3" in path or "libpython" in path:
        return "interpreter"
    return "libraries of the system" if ".so" in path else "model and others"


def _anonymous_mb(modules: Iterable[str]) -> float:
    output = subprocess.run([sys.executable, "-c", _ANONYMOUS, *modules], check=True, capture_output=True, text=True).stdout
    return sum(pages.anonymous for pages in pages_of(output).values()) / 1e6
