"""What all tests share: where real data lies, and the promise that CI skips nothing that must run."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.workers import pytest_addoption, pytest_runtestloop  # noqa: F401 - hooks

ROOT = Path(__file__).resolve().parents[1]
MUST_RUN = frozenset(filter(None, os.environ.get("EDGEMETER_MUST_RUN", "").split(",")))
# A file for the names of the tests that failed, a line each: CI runs them again, alone.
FAILED = os.environ.get("EDGEMETER_FAILED")
_skipped: list[str] = []
_failed: dict[str, None] = {}
_full_collections = [-1]
# What a test's commands keep is not kept among anybody's own results.
_HOME = tempfile.TemporaryDirectory(prefix="edgemeter-tests-")
os.environ["EDGEMETER_HOME"] = _HOME.name
# Boards of tests are many on one machine: each has a run lock of its own, in its home.
os.environ["EDGEMETER_RUN_LOCK"] = "run.lock"
# A shell that runs the tests in its background hands down an ignored Ctrl-C, nohup an ignored SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _folder(variable: str, default: str) -> Path:
    folder = Path(os.environ.get(variable) or ROOT.parent / "shared" / default)
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there (set {variable})")
    return folder


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Return the folder of real models and photographs, or skip."""
    return _folder("EDGEMETER_REALDATA", "realdata")


@pytest.fixture(scope="session")
def captures() -> Path:
    """Return the folder of what real boards printed, or skip."""
    return _folder("EDGEMETER_CAPTURES", "captures")


def _influxd(major: int, *programs: str | Path | None) -> Path:
    """Return the first program that says it is InfluxDB of that major version, or skip: both versions call theirs `influxd`."""
    for program in filter(None, programs):
        if Path(program).is_file():
            said = subprocess.run([program, "version"], capture_output=True, text=True, check=False, timeout=150).stdout
            if f"InfluxDB v{major}." in said or f"InfluxDB {major}." in said:
                return Path(program)
    pytest.skip(f"no InfluxDB {major} is here (set {'EDGEMETER_INFLUXD' if major == 2 else 'EDGEMETER_INFLUXD1'})")


@pytest.fixture(scope="session")
def influxd() -> Path:
    """Return the program of InfluxDB 2, or skip."""
    return _influxd(2, os.environ.get("EDGEMETER_INFLUXD"), ROOT.parent / "shared" / "bin" / "influxd", shutil.which("influxd"))


@pytest.fixture(scope="session")
def influxd1() -> Path:
    """Return the program of InfluxDB 1 (Debian's package `influxdb`), or skip."""
    return _influxd(1, os.environ.get("EDGEMETER_INFLUXD1"), shutil.which("influxd"), "/usr/bin/influxd")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Set aside what was imported and collected: each timed run begins with a full garbage collection, which took half a second of it.

    The run gives back what was set aside; that there was a full collection says so, while to count what is set aside takes 10 ms.
    """
    full = gc.get_stats()[2]["collections"]
    if full != _full_collections[-1]:
        _full_collections.append(full)
        gc.collect(1)
        gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what failed, and a skipped test that carries a marker of EDGEMETER_MUST_RUN; workers' reports come here too."""
    if report.failed:
        _failed[report.nodeid] = None
    marked = MUST_RUN.intersection(report.keywords)
    if report.skipped and marked and not hasattr(report, "wasxfail"):
        _skipped.append(f"{report.nodeid} ({', '.join(sorted(marked))})")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped and must not be."""
    if _skipped:
        terminalreporter.section("skipped, but EDGEMETER_MUST_RUN says they must run", red=True)
        for name in _skipped:
            terminalreporter.line(name)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that skipped what it must not; write down what failed, where that is all that is wrong."""
    if _skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if FAILED and not _skipped and exitstatus == pytest.ExitCode.TESTS_FAILED:
        Path(FAILED).write_text("".join(f"{name}\n" for name in _failed), encoding="utf-8")
