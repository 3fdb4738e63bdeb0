"""Shared parts of all tests.

They are the place of real data, a skip without what a marker needs, and the promise that CI skips
nothing that must run.
"""

import gc
import logging
import os
import random
import signal
import tempfile
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests import requirements
from tests.isolation import Guard, needs_python_only, set_of
from tests.time_limit import TimeLimit

MUST_RUN = frozenset(filter(None, os.environ.get("EDGEMETER_MUST_RUN", "").split(",")))
_skipped: list[str] = []
_crashed: list[str] = []
_full_collections = [-1]
# Files that a test's commands keep are not mixed with anybody's own results.
_HOME = tempfile.TemporaryDirectory(prefix="edgemeter-tests-")
os.environ["EDGEMETER_HOME"] = _HOME.name
# Boards of tests are many on one machine: each has a run lock of its own, in its home.
os.environ["EDGEMETER_RUN_LOCK"] = "run.lock"
# A shell that runs the tests in its background hands down an ignored Ctrl-C, nohup an ignored
# SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Return the folder of real models and photographs."""
    return _of_marker("realdata", requirements.data_folder("EDGEMETER_REALDATA", "realdata"))


@pytest.fixture(scope="session")
def captures() -> Path:
    """Return the folder of what real boards printed."""
    return _of_marker("captures", requirements.data_folder("EDGEMETER_CAPTURES", "captures"))


@pytest.fixture(scope="session")
def influxd() -> Path:
    """Return the program of InfluxDB 2."""
    return _of_marker("influx", requirements.influxd())


def _of_marker(marker: str, path: Path | None) -> Path:
    if path is None:
        raise RuntimeError(
            f"this is not here: the test that uses it must carry the marker `{marker}`"
        )
    return path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the order of the tests.

    A changed order shows whether a test depends on what the tests before it usually leave behind.
    """
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="shuffle the files and the tests of each; not with the order of xdist",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Print the seed of the order."""
    seed = config.getoption("shuffle")
    return (
        None
        if seed is None
        else f"shuffled: --shuffle={seed} --no-loadscope-reorder gives this order again"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests of the first set, and bound the processes of the first two sets.

    Each process that runs tests does so.
    """
    config.pluginmanager.register(Guard())
    config.pluginmanager.register(TimeLimit())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its set, before `-m` selects, and shuffle.

    Its other markers say to which set it belongs. What EDGEMETER_MUST_RUN names may be a marker, or
    a program that the marker `needs` names.
    """
    for item in items:
        item.add_marker(set_of(item))
        item.keywords.update(
            {program: True for mark in item.iter_markers("needs") for program in mark.args}
        )
    if (seed := config.getoption("shuffle")) is not None:
        order = random.Random(seed)  # noqa: S311 - an order of tests
        rank: dict[Path, float] = defaultdict(order.random)
        order.shuffle(items)
        items.sort(key=lambda item: rank[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test without what its markers need, before its fixtures; freeze the old objects.

    Everything that was imported and collected is set aside from garbage collection.

    A server's command that an earlier test called in this process limits what is logged of a device
    (agent/base/log_limit.py). Each timed run begins with a full garbage collection, which took half
    a second of it. The run gives back what was set aside; that there was a full collection says so,
    while to count what is set aside takes 10 ms.
    """
    for handler in logging.getLogger().handlers:
        handler.filters.clear()
    absent = requirements.absent(item.iter_markers())
    if absent is not None:
        item.user_properties.append(("absent", absent[0]))
        pytest.skip(absent[1])
    full = gc.get_stats()[2]["collections"]
    if full != _full_collections[-1]:
        _full_collections.append(full)
        gc.collect(1)
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test without a marker that skips itself: such a test runs on every machine."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and needs_python_only(item):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} is skipped: mark what it needs (tests/requirements.py)"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what is skipped for a marker or program of EDGEMETER_MUST_RUN.

    A test that also needs what is in the table and need not run here, as a server of another
    environment, may be skipped for that one.
    """
    absent = str(dict(report.user_properties).get("absent"))
    marked = MUST_RUN.intersection([absent] if absent in requirements.NEEDS else report.keywords)
    if report.skipped and marked and not hasattr(report, "wasxfail"):
        _skipped.append(f"{report.nodeid} ({', '.join(sorted(marked))})")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Return the scheduler for `--dist loadfile`."""
    from tests.lost_worker import FileScheduling  # noqa: PLC0415 - where xdist is

    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Print how a process that ran tests ended, if nobody wanted it.

    A signal leaves no other trace.
    """
    if error:
        status = node.gateway._io.popen.wait(60)
        print(f"the process of {node.gateway.id} ended with status {status}, negative for a signal")
        _crashed.append(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """Fail the other tests of a file in which a process ended."""
    for test in getattr(sched, "not_run", ()):
        reason = f"not run, because the process ended in {crashitem}"
        path, line, _ = report.location
        failure = pytest.TestReport(test, (path, line, test), {}, "failed", reason, "call")
        report.node.config.hook.pytest_runtest_logreport(report=failure)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped and must not be."""
    if _skipped:
        terminalreporter.section("skipped, but EDGEMETER_MUST_RUN says they must run", red=True)
        for name in _skipped:
            terminalreporter.line(name)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that skipped what it must not.

    It also fails if one of its processes ended between two tests.
    """
    if (_skipped or _crashed) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
