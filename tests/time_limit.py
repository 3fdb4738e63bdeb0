"""Bounds each process that a test of the first two sets starts.

A process that hangs fails its test by name, instead of stopping the set. The process ends a time
after its start that its set has in `LIMITS_S`, or the test's marker `limit_s`: a measurement of the
second set waits for a quiet moment, which other tests do not leave. A process of a fixture, which
may be a server, has `FIXTURE_LIMIT_S` at least. Servers that several tests share are not bounded:
they wait for the tests, no test waits for them.
"""

import os
import shlex
import signal
import subprocess
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

import pytest

from tests.isolation import set_of

LIMITS_S = {"python": 60.0, "services": 300.0}
FIXTURE_LIMIT_S = 600.0
POLL_S = 1.0
SHOWN = 300


class TimeLimit:
    """Watches the processes of the test that runs."""

    def __init__(self) -> None:
        self._limit_s: float | None = None
        self._is_shared = self._is_fixture = False
        self._started: list[tuple[float, weakref.ref[subprocess.Popen[Any]], str]] = []
        self._hung: list[str] = []
        self._ended = threading.Event()
        start = subprocess.Popen.__init__

        def note(
            process: "subprocess.Popen[Any]", command: Any, *arguments: Any, **options: Any
        ) -> None:
            start(process, command, *arguments, **options)
            if self._limit_s is not None and not self._is_shared:
                words = command if isinstance(command, str) else shlex.join(map(str, command))
                limit_s = max(self._limit_s, FIXTURE_LIMIT_S) if self._is_fixture else self._limit_s
                self._started.append(
                    (
                        time.monotonic() + limit_s,
                        weakref.ref(process),
                        f"{limit_s:.0f} s: {words[:SHOWN]}",
                    )
                )

        subprocess.Popen.__init__ = note  # type: ignore[method-assign]
        threading.Thread(target=self._watch, name="time limit of processes", daemon=True).start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Bound what a test and its own fixtures start."""
        limit_s = LIMITS_S.get(set_of(item))
        if limit_s is None:
            return (yield)
        mark = item.get_closest_marker("limit_s")
        self._limit_s = mark.args[0] if mark else limit_s
        try:
            return (yield)
        finally:
            self._limit_s = None
            self._started.clear()
            self._hung.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Any:
        """Leave alone what several tests share, and be patient with what one has."""
        before = self._is_shared, self._is_fixture
        self._is_shared, self._is_fixture = self._is_shared or fixturedef.scope != "function", True
        try:
            return (yield)
        finally:
            self._is_shared, self._is_fixture = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Any:
        """Fail a test whose process hung, whatever it made of that."""
        try:
            return (yield)
        finally:
            if self._hung:
                pytest.fail(
                    f"{self._hung[0]}: mark a test that needs longer `limit_s(SECONDS)`",
                    pytrace=False,
                )

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            for entry in list(self._started):
                ends_s, reference, text = entry
                process = reference()
                if process is None or process.returncode is not None:
                    with suppress(ValueError):
                        self._started.remove(entry)
                elif time.monotonic() > ends_s:
                    self._hung.append(f"hung, and was ended after {text}")
                    with suppress(ValueError):
                        self._started.remove(entry)
                    with suppress(ProcessLookupError):
                        is_leader = os.getpgid(process.pid) == process.pid
                        (os.killpg if is_leader else os.kill)(process.pid, signal.SIGKILL)
