"""Facts about the plug-in of pytest: runs are kept, a slower function fails, and other suites do not notice it."""

import os
import subprocess
import sys
from functools import partial
from importlib.metadata import EntryPoint

import pytest

from edgemeter._regression import case_name
from edgemeter.agent.base.file_lock import run_lock
from tests.fixtures.own_imports import ROOT

COMPLETE = partial(subprocess.run, check=False)
TEST = """
import os, time

def work():
    time.sleep(float(os.environ["WORK_S"]))

def test_speed(edgemeter_measure):
    assert len(edgemeter_measure(work, runs=3, seconds=0.0, queries=16, power="none")) == 3

def test_other():
    pass
"""


@pytest.fixture
def suite(tmp_path):
    """Return what runs pytest on a small suite in a folder of its own, and returns how it ended."""
    (tmp_path / "test_it.py").write_text(TEST)

    def run(*options, work_s=0.004, start=COMPLETE):
        variables = {"EDGEMETER_HOME": str(tmp_path / "home"), "EDGEMETER_RUN_LOCK": "run.lock", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "edgemeter._pytest_plugin", *options, "test_it.py"]
        environment = {**os.environ, **variables, "WORK_S": str(work_s)}
        return start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)

    return run


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.alone
def test_a_function_that_became_slower_fails_its_test(suite):
    """The first runs are the baseline; twice as long fails, again and again; as long as before passes."""
    limit = ("--edgemeter-fail-on", "slower:20%")
    for work_s, status, words in [
        (0.004, 0, "no baseline yet"),
        (0.004, 0, "test_it.py::test_speed: 4"),
        (0.008, 1, "times as long"),
        (0.008, 1, "times as long"),
        (0.004, 0, "3 runs"),
    ]:
        completed = suite(*limit, work_s=work_s)
        assert (completed.returncode, words in completed.stdout) == (status, True), completed.stdout
        # A test that passes is not told that a gate stays closed.
        assert status or "stays closed" not in completed.stdout


@pytest.mark.slow
def test_a_wait_for_another_run_is_reported_at_once(suite, tmp_path):
    """While the other run is in progress, and although pytest captures what tests print."""
    with run_lock(tmp_path / "home", "another run", pytest.fail):
        waiting = suite(start=subprocess.Popen)
        lines = iter(waiting.stderr.readline, "")
        assert next(line for line in lines if line.startswith("edgemeter: ")).startswith("edgemeter: another run (pid ")
    assert "2 passed" in waiting.communicate()[0]


@pytest.mark.slow
def test_a_suite_that_measures_nothing_imports_nothing(suite, tmp_path):
    """The plug-in is there, and neither numpy nor a module of ours beyond it."""
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure():\n"
        "    print('imported', sorted(name for name in sys.modules if name.startswith(('edgemeter', 'numpy', 'msgspec'))))\n"
    )
    assert "imported ['edgemeter', 'edgemeter._pytest_plugin']" in suite("-k", "other").stdout


def test_a_limit_that_is_none_is_refused_before_the_tests(suite):
    """In the words of `compare --fail-on`."""
    completed = suite("--edgemeter-fail-on", "slowr:5%")
    assert completed.returncode == 4
    assert "'slowr:5%' in 'slowr:5%' is not a limit: did you mean slower?" in completed.stderr


def test_the_entry_point_names_the_plug_in():
    """As pytest finds it where the package is installed."""
    (line,) = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("edgemeter = ") and "pytest" in line]
    assert EntryPoint("edgemeter", line.partition(" = ")[2].strip('"'), "pytest11").load().PROPERTY == "edgemeter"


def test_tests_whose_names_differ_have_cases_of_their_own():
    """Parameters too, in which only the letters differ that a name cannot have; plain ones keep their names."""
    nodes = ["t.py::test_it", "t.py::test_it[1]", "t.py::test_it[a-b]", "t.py::test_it[a/b]", "t.py::test_it[x[1]]", "t.py::test_it[x-1]"]
    nodes += [f"{folder}/{'long' * 40}.py::test_it" for folder in "ab"]
    names = [case_name(node) for node in nodes]
    assert len(set(names)) == len(nodes)
    assert names[:3] == ["t.py::test_it", "t.py::test_it-1", "t.py::test_it-a-b"]
    assert max(map(len, names)) <= 128


@pytest.mark.slow
def test_what_cannot_be_measured_is_one_line_with_the_function_s_own_error(suite, tmp_path):
    """Without frames of ours; and so is a wrong number of runs."""
    (tmp_path / "test_it.py").write_text(
        "def test_raises(edgemeter_measure):\n    edgemeter_measure(lambda: 1 / 0, power='none')\n"
        "def test_none(edgemeter_measure):\n    edgemeter_measure(len, (), runs=0)\n"
    )
    output = suite("--tb=short").stdout
    assert "MeasurementError: the function raised ZeroDivisionError: division by zero" in output
    assert "ConfigError: runs = 0: give 1 or more" in output
    assert "edgemeter/agent" not in output
