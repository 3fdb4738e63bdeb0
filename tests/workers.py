"""`--workers N`: what one process collected runs in N forked ones, a group of tests at a time; their reports come back over pipes.

pytest-xdist imports and collects every test file once per worker; here that happens once. The tests of a file form a group, since they
share servers and models. Slow ones are spread over three groups, unless they are marked `one_worker("name")`: all tests with that name run
in the same worker.
"""

import contextlib
import os
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import pytest

# Groups with the longest tests come first, so that all workers end at about the same time.
LONG, SLOW = frozenset({"long", "convert", "release"}), frozenset({"slow"})
SLOW_PARTS = 3
JOIN_WITHIN_S = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--workers`."""
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in workers; without `--workers`, leave them to pytest."""
    count = session.config.getoption("workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    pool = Pool(session, deque(groups(session.items)))
    try:
        pool.run(count)
    finally:
        pool.close()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def groups(items: list[pytest.Item]) -> list[list[int]]:
    """Return the indices of the tests that run one after the other in the same worker, the longest groups first."""
    by_name: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        mark = item.get_closest_marker("one_worker")
        part = index % SLOW_PARTS if item.get_closest_marker("slow") else 0
        by_name.setdefault(mark.args[0] if mark else f"{item.path}-{part}", []).append(index)

    def order(group: list[int]) -> tuple[int, int]:
        marks = {mark.name for index in group for mark in items[index].iter_markers()}
        return (0 if marks & LONG else 1 if marks & SLOW else 2), -len(group)

    return sorted(by_name.values(), key=order)


@dataclass
class Worker:
    """One forked process: the tests that it has still to run, and the one that it runs."""

    process: Any
    connection: Connection
    pending: deque[int]
    running: int | None = None
    dismissed: bool = False


class Pool:
    """The workers of a run: each gets a group of tests when it has ended the one before."""

    def __init__(self, session: pytest.Session, waiting: deque[list[int]]) -> None:
        self._session = session
        self._waiting = waiting
        self._workers: list[Worker] = []
        self._started = 0

    def run(self, count: int) -> None:
        """Return when all tests have been reported, or as soon as the run is to stop."""
        for _ in range(min(count, len(self._waiting))):
            self._start()
        while self._workers and not (self._session.shouldfail or self._session.shouldstop):
            ready = wait([worker.connection for worker in self._workers])
            for worker in [worker for worker in self._workers if worker.connection in ready]:
                try:
                    self._receive(worker, *worker.connection.recv())
                except (EOFError, ConnectionResetError):
                    self._ended(worker)

    def close(self) -> None:
        """Interrupt the workers that still run, and wait until they have ended their servers."""
        for worker in self._workers:
            worker.connection.close()
            if worker.process.is_alive():
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in self._workers:
            worker.process.join(JOIN_WITHIN_S)
            worker.process.kill()

    def _start(self) -> None:
        parent_end, child_end = get_context("fork").Pipe()
        open_here = [parent_end, *(worker.connection for worker in self._workers)]
        process = get_context("fork").Process(target=_work, args=(self._session, child_end, open_here, self._started))
        with warnings.catch_warnings():
            # The threads of libraries that wait for work (OpenBLAS) are stopped and started around a fork by themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        child_end.close()
        self._started += 1
        self._workers.append(Worker(process, parent_end, deque()))

    def _receive(self, worker: Worker, kind: str, content: Any) -> None:
        config = self._session.config
        if kind == "idle":
            worker.pending = deque(self._waiting.popleft() if self._waiting else ())
            worker.running = None
            worker.dismissed = not worker.pending
            worker.connection.send(list(worker.pending))
        elif kind == "start":
            worker.running = worker.pending.popleft()
        else:
            config.hook.pytest_runtest_logreport(report=config.hook.pytest_report_from_serializable(config=config, data=content))

    def _ended(self, worker: Worker) -> None:
        """Report the test that a worker died of, and give the rest of its group to a new one."""
        worker.process.join()
        self._workers.remove(worker)
        # Status 0 alone says nothing: a test may have ended its process or interrupted it.
        if worker.dismissed and worker.process.exitcode == 0:
            return
        message = f"the worker that ran this test ended with {worker.process.exitcode} (a negative number is a signal)"
        name = "between two tests" if worker.running is None else self._session.items[worker.running].nodeid
        self._session.config.hook.pytest_runtest_logreport(report=_failure(name, message, "call"))
        if worker.pending:
            self._waiting.appendleft(list(worker.pending))
        if self._waiting:
            self._start()


def _work(session: pytest.Session, connection: Connection, not_ours: list[Connection], number: int) -> None:
    """Run the groups that the parent sends until it sends an empty one."""
    for other in not_ours:
        other.close()
    _have_own_files(session.config, number)
    session.config.pluginmanager.register(_Reporter(session.config, connection))
    try:
        for group in _groups_sent(connection):
            for item, following in zip(group, [*group[1:], None], strict=True):
                # After the last test of a group the servers of the session stay up for the next group.
                following_node: Any = session if following is None else session.items[following]
                session.config.hook.pytest_runtest_protocol(item=session.items[item], nextitem=following_node)
    except (KeyboardInterrupt, pytest.exit.Exception, BrokenPipeError):
        # The parent stops the run, or is gone.
        pass
    finally:
        _end_servers(session, connection, number)


def _groups_sent(connection: Connection) -> Iterator[list[int]]:
    while True:
        connection.send(("idle", None))
        group = connection.recv()
        if not group:
            return
        yield group


def _have_own_files(config: pytest.Config, number: int) -> None:
    """Give a worker folders and a capture of its own, and let only the parent print."""
    os.environ["EDGEMETER_HOME"] = f"{os.environ['EDGEMETER_HOME']}/worker-{number}"
    # pytest offers nothing public for these three; tests/project/test_workers.py fails when they change.
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    folder = factory.getbasetemp() / f"worker-{number}"
    folder.mkdir()
    factory._basetemp = folder
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture(in_=True)
    config.get_terminal_writer()._file = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the worker ends


def _end_servers(session: pytest.Session, connection: Connection, number: int) -> None:
    """Run what fixtures of the whole session have to do at the end; report what fails of it."""
    try:
        session._setupstate.teardown_exact(None)
    except Exception:  # noqa: BLE001 - any fixture's error
        report = _failure(f"the end of worker {number}", traceback.format_exc(), "teardown")
        with contextlib.suppress(BrokenPipeError):
            connection.send(("report", session.config.hook.pytest_report_to_serializable(config=session.config, report=report)))


def _failure(name: str, message: str, when: Literal["call", "teardown"]) -> pytest.TestReport:
    return pytest.TestReport(name, (name, None, name), {}, "failed", message, when)


class _Reporter:
    """Sends what happens in a worker to the parent."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self) -> None:
        """Say that the next test of the group begins."""
        self._connection.send(("start", None))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        self._connection.send(("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report)))
