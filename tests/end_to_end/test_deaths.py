"""Tests of a run that crashes, hangs, fills the memory or is ended, in each of its phases.

Each gives a clear line, and nothing is left running or behind.

The command runs with a terminal for its progress, by which the phase is known. The test adopts
orphans, so that none is missed, in whatever sandbox.
"""

import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from edgemeter.agent.base.errors import FAILED, INTERRUPTED, TERMINATED
from tests.fixtures.oip_server import served_file

REPOSITORY = Path(__file__).parents[2]
LANGUAGE_MODEL = REPOSITORY / "models/language/edgemeter-notes_q8_0.gguf"
MODEL = """
import ctypes, os, threading, time
from pathlib import Path

import numpy as np

from edgemeter.plugin import Loaded, Runtime, TensorInfo

CRASHES = {"segv": lambda: ctypes.string_at(0), "oom": lambda: os.kill(os.getpid(), 9)}
X, Y = TensorInfo("x", (1, 3, 8, 8), "float32"), TensorInfo("y", (1, 2), "float32")


def memory():
    raise MemoryError


def strike(phase, faults):
    fault, when = Path(__file__).with_name("fault").read_text().split()
    if when == phase and fault in faults:
        faults[fault]()


def watch():
    while True:
        time.sleep(0.01)
        strike("now", CRASHES)


def make():
    faults, calls = {**CRASHES, "hang": lambda: time.sleep(999), "memory": memory}, []
    strike("load", faults)
    threading.Thread(target=watch, daemon=True).start()

    def call(x):
        strike("now" if calls else "first", faults)
        calls.append(0)
        time.sleep(0.03)
        return np.array([[0.2, 0.8]], np.float32)

    return call, {"x": ("float32", (1, 3, 8, 8))}


class Mine(Runtime):
    def load(self, model, options):
        self.call = make()[0]
        return Loaded(
            package="numpy", version="1", backend="cpu", inputs=(X,), outputs=(Y,), metadata={},
            import_ns=0, load_ns=1
        )

    def bind(self, inputs):
        def call():
            self.y = self.call(*inputs)
        return call

    def outputs(self):
        return [self.y]

    def close(self):
        pass
"""
SENSOR = """
import time
from edgemeter.plugin import Description, PowerSensor, Reading

class Mains(PowerSensor):
    def describe(self):
        return Description(
            id="mains", scope="board-input", excludes=(), kind="power", period_ms=50.0,
            resolution_w=None, gain_u_ratio=None
        )
    def read(self):
        return Reading(taken_ns=time.monotonic_ns(), power_w=5.0)
"""
# A hang ends after 8 s instead of ten minutes, no run waits for a quiet moment, and the progress
# shows short phases too.
HURRIED = """
from edgemeter.agent.engine import isolation
from edgemeter.agent.measuring import session_progress
from edgemeter.agent.session.quiet import QuietMoment
isolation.OVERTIME_S = 8.0
session_progress.DRAWN_S = 0.05
QuietMoment.wait = lambda *_: None
"""
COMMAND = f"{HURRIED}\nfrom edgemeter.agent.cli.main import main\nmain()"
# Its calls say how far it is.
FUNCTION = f"""{HURRIED}
import itertools, sys, edgemeter, model, numpy as np
from edgemeter.agent.base.errors import EdgemeterError
call, numbers = model.make()[0], itertools.count()
def f(x):
    print(": call", next(numbers), file=sys.stderr, flush=True)
    return call(x)
try:
    x = np.zeros((1, 3, 8, 8), np.float32)
    edgemeter.measure(f, x, mode="rapid", seconds=1.0, power="none", save=False)
except EdgemeterError as error:
    sys.exit(f"edgemeter: {{error}}")
"""
SERVE = """
import sys, time
from tests.fixtures.oip_server import ServedModelScript, oip_server
with oip_server(ServedModelScript(compute_s=0.02)) as url:
    print(url, flush=True)
    sys.stdin.read()
"""
CASES = {
    "factory": (
        'model = "model.py:make"\ndata = "data"\ntask = "classification"\nannotations = '
        '"classes.json"'
    ),
    "plug-in": (
        'model = "model.bin"\nruntime = "model.py:Mine"\ndata = "data"\ntask = "classification"\n'
        'annotations = "classes.json"'
    ),
    "served": 'model = "double.server"',
    "language model": f'model = "{LANGUAGE_MODEL}"\nprompt_tokens = 64\noutput_tokens = 32',
}
SUITE = (
    'name = "deaths"\n[[case]]\n{case}\nmode = "rapid"\nseconds = 2.0\nidle_seconds = 2.0\n'
    "repeats = 1\n"
)
PR_SET_CHILD_SUBREAPER = 36
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
GONE_S = 10.0
IN_MODEL = ("segv", "oom", "hang", "memory")
TO_SERVER = {"server dies": signal.SIGKILL, "server hangs": signal.SIGSTOP}
# The status, and what the line says; no line where nobody is left to say it.
ENDINGS = {
    "segv": (FAILED, "SIGSEGV"),
    "oom": (FAILED, "SIGKILL.*kernel kills processes when memory runs out"),
    "killed": (FAILED, "SIGKILL.*kernel kills processes when memory runs out"),
    "hang": (FAILED, "took longer than its limit of"),
    "memory": (FAILED, "out of memory|MemoryError"),
    "server dies": (FAILED, "no answer from .*start the server"),
    "server hangs": (FAILED, "took longer than its limit of"),
    "SIGINT": (INTERRUPTED, "interrupted before the first run ended"),
    "SIGTERM": (TERMINATED, "terminated"),
    "SIGKILL": (-signal.SIGKILL, ""),
}
DEATHS = """
factory: load segv, first hang, warm-up memory, idle before segv, timed oom, accuracy hang, \
load SIGTERM, idle before SIGINT, timed SIGKILL
plug-in: load hang, timed segv, accuracy memory, accuracy SIGKILL
function: call 40 memory, call 40 SIGKILL
served: warm-up server dies, timed server hangs, timed SIGINT, warm-up SIGKILL
language model: idle before SIGINT, timed killed, timed SIGKILL
unconfined: timed oom, timed SIGINT, load SIGKILL
"""
PHASES = ("load", "first", "warm-up", "idle before", "timed", "accuracy")
NEEDS = {
    "language model": [pytest.mark.needs(module="xllamacpp")],
    "unconfined": [pytest.mark.needs("setpriv")],
}


def table():
    """Return subject, phase and fault of each death.

    They are those named above, and at night every one of a model in a file.
    """
    for line in DEATHS.strip().splitlines():
        subject, _, deaths = line.partition(": ")
        for death in deaths.split(", "):
            phase = re.match(rf"{'|'.join(PHASES)}|call \d+", death)[0]
            yield pytest.param(
                subject,
                phase,
                death[len(phase) + 1 :],
                marks=[pytest.mark.services, *NEEDS.get(subject, [])],
            )
    for death in itertools.product(
        ("factory", "plug-in"), PHASES, (*IN_MODEL, "SIGINT", "SIGTERM", "SIGKILL")
    ):
        yield pytest.param(*death, marks=pytest.mark.nightly)


def alive(before=frozenset()):
    """Return the running processes below this one, without those that ran before.

    Ended processes that nobody else waits for are reaped.
    """
    running = []
    for process in set(psutil.Process().children(recursive=True)) - before:
        with suppress(psutil.NoSuchProcess, ChildProcessError):
            if process.status() == psutil.STATUS_ZOMBIE and process.ppid() == os.getpid():
                os.waitpid(process.pid, os.WNOHANG)
            elif process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


class DyingRun:
    """A run of a subject in a folder; what it writes is `text`."""

    def __init__(self, folder: Path, subject: str) -> None:
        self.text = ""
        self._terminal, stderr = os.openpty()
        (folder / "suite.toml").write_text(SUITE.format(case=CASES.get(subject, CASES["factory"])))
        code = (
            [FUNCTION]
            if subject == "function"
            else [COMMAND, "run", "suite.toml", "--power", "sensor.py:Mains"]
        )
        variables = {
            "EDGEMETER_HOME": "home",
            "EDGEMETER_RUN_LOCK": "run.lock",
            "TMPDIR": "scratch",
        }
        variables |= {"PYTHONPATH": ""} if subject == "function" else {}
        variables |= {"PATH": "bin"} if subject == "unconfined" else {}
        environment = {
            **os.environ,
            "TERM": "xterm",
            "COLUMNS": "200",
            **{name: str(folder / at) for name, at in variables.items()},
        }
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": stderr}
        self.process = subprocess.Popen(
            [sys.executable, "-c", *code],
            cwd=folder,
            env=environment,
            start_new_session=True,
            **streams,
        )
        os.close(stderr)

    def read(self) -> bool:
        """Read on; return whether there may be more.

        Linux reports the end of the other side as an error.
        """
        with suppress(OSError):
            self.text += CODES.sub("", os.read(self._terminal, 1 << 16).decode(errors="replace"))
            return True
        return False

    def reach(self, phase: str) -> None:
        while not re.search(rf"[\]:] {phase}\b", self.text):
            assert self.read(), self.text

    def end(self) -> tuple[int, list[str]]:
        """Wait for its end; return its status and the lines that it wrote as `edgemeter`."""
        while self.read():
            pass
        os.close(self._terminal)
        status = self.process.wait(timeout=60)
        return status, [
            line for line in re.split(r"[\r\n]+", self.text) if line.startswith("edgemeter: ")
        ]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model, its data, a sensor, and programs without bubblewrap.

    This process adopts all orphans.
    """
    for name in ("data", "scratch", "bin"):
        (tmp_path / name).mkdir()
    for number in range(60):
        np.save(tmp_path / f"data/{number}.npy", np.full((1, 3, 8, 8), number, np.float32))
    (tmp_path / "classes.json").write_text(
        json.dumps({f"{number}.npy": number % 2 for number in range(60)})
    )
    for name, content in {
        "model.py": MODEL,
        "sensor.py": SENSOR,
        "model.bin": "x",
        "fault": "none never",
    }.items():
        (tmp_path / name).write_text(content)
    for program in filter(None, map(shutil.which, ("prlimit", "choom", "setpriv"))):
        (tmp_path / "bin" / Path(program).name).symlink_to(program)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield tmp_path
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def server(folder):
    """Return the process of a server, whose file is in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        served_file(folder, process.stdout.readline().strip())
        yield process
        process.kill()


def strike(run, folder, fault, server):
    """Let the run die, from where it dies of this fault."""
    if fault in IN_MODEL:
        (folder / "next").write_text(f"{fault} now")
        (folder / "next").rename(folder / "fault")
    elif fault == "killed":
        # The computing process starts no other.
        next(
            child
            for child in psutil.Process(run.process.pid).children(recursive=True)
            if not child.children()
        ).kill()
    elif fault in TO_SERVER:
        server.send_signal(TO_SERVER[fault])
    elif fault == "SIGINT":
        # A terminal's Ctrl-C goes to all of its group.
        os.killpg(run.process.pid, signal.SIGINT)
    else:
        run.process.send_signal(signal.Signals[fault])


@pytest.mark.parametrize(("subject", "phase", "fault"), [*table()])
def test_a_death_is_one_line_and_leaves_nothing(request, folder, subject, phase, fault):
    """A run that dies gives one line and leaves nothing behind.

    It dies of a crash, a kill as by the kernel when memory runs out, a hang, a MemoryError or
    Ctrl-C, or the command is ended or killed.
    """
    server = request.getfixturevalue("server") if subject == "served" else None
    before = frozenset(psutil.Process().children(recursive=True))
    is_early = phase in ("load", "first")
    if is_early:
        # A model that hangs there is killed there.
        (folder / "fault").write_text(f"{fault if fault in IN_MODEL else 'hang'} {phase}")
    run = DyingRun(folder, subject)
    if not (is_early and fault in IN_MODEL):
        run.reach("load" if is_early else phase)
        strike(run, folder, fault, server)
    status, lines = run.end()
    deadline_s = time.monotonic() + GONE_S
    while (survivors := alive(before)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    for process in survivors:
        process.kill()
    assert not survivors, [process.cmdline() for process in survivors]
    expected, text = ENDINGS[fault]
    assert (status, len(lines)) == (expected, bool(text)), run.text
    assert all(re.search(text, line) for line in lines), lines
    assert "Traceback" not in run.text
    assert fault == "SIGKILL" or not list((folder / "scratch").iterdir())
