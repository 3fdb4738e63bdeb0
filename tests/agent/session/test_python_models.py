"""A Python factory is measured from the command to the record.

It runs in a process and a sandbox of its own.
"""

import hashlib
import json
import os
import re

import msgspec
import psutil
import pytest

from edgemeter.agent.contract import case_identity
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.runs.relation import relation
from tests.fixtures.command import edgemeter

pytestmark = pytest.mark.services
MODEL = """
import time
from pathlib import Path

import numpy as np

from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.runtimes.python_model import PythonModel


def make(weights="w.bin", seconds="0.002"):
    factor = np.frombuffer(Path(weights).read_bytes(), np.float32)[0]
    calls = []

    def call(x):
        time.sleep(float(seconds) if calls else 0.2)
        calls.append(x)
        return {"y": x * factor}

    return PythonModel(
        call=call,
        inputs=(TensorInfo("x", (1, 4), "float32"),),
        weights=(Path(weights),),
        compiles=True,
    )
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that measures an address in `tmp_path` and returns its one record."""

    def measured(*arguments):
        environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")}
        words = (
            "run",
            *arguments,
            "--mode",
            "rapid",
            "--repeats",
            1,
            "--power",
            "none",
            "--format",
            "json",
            "-q",
        )
        completed = edgemeter(*words, env=environment, cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)["runs"][0]

    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "w.bin").write_bytes(b"\0\0\0@")
    return measured


def failure(tmp_path, source, *arguments):
    """Return the line with which a run of a factory of this source fails."""
    (tmp_path / "bad.py").write_text(source)
    environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")}
    completed = edgemeter(
        "run",
        "-q",
        "bad.py:make",
        "--mode",
        "rapid",
        "--power",
        "none",
        *arguments,
        env=environment,
        cwd=tmp_path,
    )
    assert completed.returncode in (1, 2)
    (line,) = [line for line in completed.stderr.splitlines() if line.startswith("edgemeter: ")]
    assert "Traceback" not in completed.stderr
    return line


def test_a_factory_is_measured_as_a_file_is(run, tmp_path):
    """The first call is separate from the timed ones.

    The identity is that of the source and the weights.
    """
    record = run("net.py:make")
    assert record["runtime"]["name"] == PYTHON
    assert record["runtime"]["threads_reason"]
    contents = (tmp_path / "net.py").read_bytes() + (tmp_path / "w.bin").read_bytes()
    sha256 = hashlib.sha256(contents).hexdigest()
    assert record["model"] | {"task": ""} == {
        "name": "w", "sha256": sha256, "file": "net.py:make", "size_bytes": len(contents),
        "task": "",
    }  # fmt: skip
    cold = record["cold_start"]
    assert record["latency"]["p50_ms"] < cold["compile_ms"] <= cold["first_ms"]
    assert f"has sha256 {sha256}" in failure(tmp_path, MODEL, "--sha256", "0" * 64)
    # A function runs in its caller's process, and its backend says so.
    factory = case_identity.key_of(msgspec.json.decode(json.dumps(record), type=RunRecord))
    related = relation(factory, msgspec.structs.replace(factory, backend="in-process"))
    assert (related.unlike, [difference.mark for difference in related.marked]) == (
        (),
        ["other backend"],
    )


def test_what_goes_wrong_in_a_factory_is_one_line(tmp_path):
    """The line comes before the first run where possible, as for what the sandbox forbids."""
    for source, text in [
        (
            "def make(): open('/etc/shadow')",
            "raised FileNotFoundError.* in the sandbox of a run, code may read its own folder",
        ),
        (
            (
                "n = []\ndef f(x):\n n.append(0)\n return x / (1 if len(n) < 10 else None)\ndef "
                "make(): return f, {'x': ('float32', (1, 4))}"
            ),
            r"failed on .*TypeError.*\(line 4 of bad.py\)$",
        ),
    ]:
        line = failure(tmp_path, source)
        assert re.search(text, line), line


def test_a_model_that_takes_all_memory_ends_by_its_own_limit(tmp_path):
    """A tenth of the memory, without swap, is reserved for the agent and the system.

    The error says how much a run may take.
    """
    total_bytes = psutil.virtual_memory().total
    line = failure(
        tmp_path, f"import numpy as np\ndef make(): np.empty({total_bytes * 91 // 100}, np.uint8)"
    )
    assert re.search(
        rf"out of memory .*bad.py:make': a run may take {total_bytes * 0.9 / 1e9:.3g} GB on this "
        r"machine: use a smaller model",
        line,
    ), line


def test_a_model_that_keeps_its_results_has_a_note(run, tmp_path):
    """The model's memory grows while it is timed."""
    source = "import numpy as np\nkept = []\ndef f(x):\n kept.append(np.ones(100_000))\n return x\n"
    (tmp_path / "leak.py").write_text(
        f"{source}def make(): return f, {{'x': ('float32', (1, 4))}}\n"
    )
    record = run("leak.py:make")
    assert "memory-grows" in [violation["rule"] for violation in record["verdict"]["notes"]]
    assert record["memory"]["grown_mb"] > 40


def test_code_reads_its_folder_and_what_options_name_and_no_more(run, tmp_path):
    """The kernel's sandbox keeps it from all other files.

    It may start programs, such as the compilers of frameworks.
    """
    source = (
        "import os, subprocess\nimport helper\n"
        "def make(extra):\n assert os.listdir(extra) == ['a.txt']\n subprocess.run(['true'], "
        "check=True)\n"
        " try: open(SECRET); raise AssertionError\n except FileNotFoundError: pass\n"
        " return (lambda x: x), {'x': ('float32', (1, 4))}\n"
    )
    for folder in ("code", "data", "secret"):
        (tmp_path / folder).mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    (tmp_path / "data" / "a.txt").write_text("a")
    (tmp_path / "code" / "helper.py").write_text("")
    (tmp_path / "code" / "mine.py").write_text(
        f"SECRET = {str(tmp_path / 'secret' / 'key')!r}\n{source}"
    )
    run("code/mine.py:make", "--option", f"extra={tmp_path / 'data'}")
