"""Tests that a process that crashes or hangs affects only its own file.

The run fails, and nothing is rerun.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONCE = re.search(r"^ONCE := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
TESTS = """import os, signal, time
from pathlib import Path

import pytest

@pytest.mark.services
@pytest.mark.parametrize("number", range(4))
def test_part(number):
    with Path(os.environ["RAN"]).open("a") as file:
        file.write(f"{Path(__file__).stem} {number}\\n")
    if (Path(__file__).stem, number) in {("test_b", 1), ("test_e", 3)}:
        os.kill(os.getpid(), signal.SIGSEGV)
    if (Path(__file__).stem, number) == ("test_c", 0):
        time.sleep(100)
"""
FILES = "abcdefgh"
LOST = {
    "test_b.py::test_part[1]": "crashed while running",
    "test_b.py::test_part[2]": "not run, because the process ended in test_b.py::test_part[1]",
    "test_b.py::test_part[3]": "not run, because the process ended in test_b.py::test_part[1]",
    "test_c.py::test_part[0]": "crashed while running",
    **{
        f"test_c.py::test_part[{number}]": (
            "not run, because the process ended in test_c.py::test_part[0]"
        )
        for number in (1, 2, 3)
    },
    "test_e.py::test_part[3]": "crashed while running",
}


@pytest.mark.services
def test_a_process_that_ends_takes_only_its_own_file_with_it(tmp_path):
    """Tests that a lost process did not run fail by name, and all others run once.

    Two processes crash and one hangs.
    """
    for letter in FILES:
        (tmp_path / f"test_{letter}.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        "-n",
        "2",
    ]
    command += [
        *ONCE,
        "-o",
        "faulthandler_timeout=5",
        "-o",
        "faulthandler_exit_on_timeout=true",
        tmp_path,
    ]
    variables = {
        "PATH": str(Path(sys.executable).parent),
        "RAN": str(tmp_path / "ran"),
        "PYTHONPATH": str(ROOT),
    }
    result = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 1, result.stdout
    assert f"{len(LOST)} failed, {4 * len(FILES) - len(LOST)} passed" in result.stdout
    for test, words in LOST.items():
        assert re.search(rf"^FAILED \S*{re.escape(test)}( |$)", result.stdout, re.MULTILINE), test
        assert words in result.stdout, test
    assert "ended with status -11" in result.stdout
    runs = Counter((tmp_path / "ran").read_text().splitlines())
    not_run = sum("not run" in words for words in LOST.values())
    assert (set(runs.values()), len(runs)) == ({1}, 4 * len(FILES) - not_run)


@pytest.mark.services
def test_a_shuffled_order_is_its_seeds(tmp_path):
    """A printed seed gives its shuffled order again, and another seed another order.

    Files stay whole.
    """
    for letter in FILES:
        (tmp_path / f"test_{letter}.py").write_text(TESTS)

    def order(seed):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.conftest",
            "-c",
            ROOT / "pyproject.toml",
            "--rootdir",
            tmp_path,
        ]
        command += ["--collect-only", "-q", f"--shuffle={seed}", tmp_path]
        printed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=100
        ).stdout
        return re.findall(r"^\S*test_(\w)\.py::test_part\[(\d)\]", printed, re.MULTILINE)

    assert order(1) == (shuffled := order(1))
    assert (
        sorted(shuffled)
        == [(letter, str(number)) for letter in FILES for number in range(4)]
        != shuffled
    )
    assert "".join(letter for letter, _ in shuffled[::4]) == "".join(
        dict.fromkeys(letter for letter, _ in shuffled)
    )
    assert order(2) != shuffled
