"""The forked workers that run the tests report as one process would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SUPPORT = {
    "conftest.py": "from tests.workers import pytest_addoption, pytest_runtestloop\n",
    "pytest.ini": "[pytest]\nmarkers =\n    slow: slow\n    long: long\n    convert: convert\n    one_worker(name): one worker\n",
}
COUNTED = """
import os, pathlib, time
with pathlib.Path('imports').open('a') as note:
    note.write(__name__ + ' ')
def test_it():
    time.sleep(0.5)
    print('process', os.getpid())
"""
FAILS = """
import pytest
def test_wrong():
    print('about to fail')
    assert [1, 2] == [1, 3]
def test_absent():
    pytest.skip('not here')
"""
DIES = """
import os, signal
def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
def test_after():
    pass
"""
ENDS = """
import os
def test_ends():
    os._exit(0)
def test_after():
    pass
"""
INTERRUPTS = """
def test_interrupts():
    raise KeyboardInterrupt
def test_after():
    pass
"""
WAITS = """
import pathlib, pytest, time
@pytest.fixture
def server():
    yield
    pathlib.Path('ended').touch()
def test_waits(server):
    pathlib.Path('waiting').touch()
    time.sleep(200)
"""
FAILS_LATER = """
import pathlib, time
def test_fails():
    while not pathlib.Path('waiting').exists():
        time.sleep(0.05)
    assert False
def test_never():
    pass
"""
HANGS_AT_ITS_END = """
import pytest
@pytest.fixture(scope='session')
def server():
    yield
    raise OSError('the server hangs')
def test_it(server):
    pass
"""
SHARES = """
import os, pytest
@pytest.mark.slow
@pytest.mark.one_worker('shared')
@pytest.mark.parametrize('number', range(9))
def test_it(number):
    print('process', os.getpid())
"""
PASSES = "def test_passes():\n    pass\n"


@pytest.fixture
def run_suite(tmp_path):
    """Return a function that writes test files and runs them in two workers."""

    def run(*files: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        for name, text in {**SUPPORT, **{f"test_file_{number}.py": text for number, text in enumerate(files)}}.items():
            (tmp_path / name).write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "EDGEMETER_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--workers", "2", *options]
        completed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
        return completed.returncode, completed.stdout + completed.stderr

    return run


def test_every_file_is_imported_once_and_both_workers_run_tests(run_suite, tmp_path):
    """Each import of a test file and each process that runs a test leaves a word."""
    status, output = run_suite(COUNTED, COUNTED, COUNTED, COUNTED)
    assert status == 0, output
    assert "4 passed" in output
    assert sorted((tmp_path / "imports").read_text().split()) == ["test_file_0", "test_file_1", "test_file_2", "test_file_3"]
    assert len(set(re.findall(r"^process (\d+)$", output, re.MULTILINE))) == 2


def test_a_failure_shows_its_values_and_what_was_printed(run_suite):
    """As without workers; a skipped test is counted."""
    status, output = run_suite(FAILS, PASSES)
    assert status == 1
    assert "1 failed, 1 passed, 1 skipped" in output
    assert "At index 1 diff: 2 != 3" in output
    assert "about to fail" in output


def test_a_worker_that_dies_costs_one_test(run_suite):
    """The test that it died of is named, the rest of its group runs in a new worker."""
    status, output = run_suite(DIES, PASSES)
    assert status == 1
    assert "1 failed, 2 passed" in output
    assert "the worker that ran this test ended with -9" in output
    assert "test_file_0.py::test_dies" in output


@pytest.mark.parametrize("text", [ENDS, INTERRUPTS], ids=["ends", "interrupts"])
def test_a_test_that_ends_its_worker_quietly_is_a_failure(run_suite, text):
    """Exit status 0, or an interrupt that nobody sent: the test is named, and the one after it still runs."""
    status, output = run_suite(text, PASSES)
    assert status == 1
    assert "1 failed, 2 passed" in output
    assert "the worker that ran this test ended with 0" in output


def test_the_first_failure_can_stop_the_run(run_suite, tmp_path):
    """With -x the other worker is interrupted, and its fixtures still end what they started."""
    status, output = run_suite(WAITS, FAILS_LATER, options=("-x",))
    assert status == 1, output
    assert "1 failed" in output
    assert "stopping after 1 failures" in output
    assert (tmp_path / "ended").exists()


def test_a_fixture_of_the_session_that_fails_at_its_end_fails_the_run(run_suite):
    """It ends after the last test of its worker."""
    status, output = run_suite(HANGS_AT_ITS_END)
    assert status == 1
    assert "the server hangs" in output


def test_tests_of_one_worker_run_in_one_process(run_suite):
    """Slow tests of a file are spread over three groups, but for those that share something."""
    status, output = run_suite(SHARES, SHARES)
    assert status == 0, output
    assert "18 passed" in output
    assert len(set(re.findall(r"^process (\d+)$", output, re.MULTILINE))) == 1
