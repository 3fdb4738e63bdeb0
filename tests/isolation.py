"""A test without a marker needs Python and nothing else.

It fails where it sleeps, uses a socket or starts a process. An audit hook sees that in the
product's threads and in libraries too, and PATH is an empty folder: a forgotten marker fails
everywhere.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import requirements

# A test with one of these belongs to the services.
SERVICES = frozenset({"services", "needs", "packaging", "hardware", *requirements.NEEDS})
# These say themselves when they run.
NIGHTLY = ("alone", "nightly")
SOCKETS = frozenset({"socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname"})
PROCESSES = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "subprocess.Popen",
    }
)
WATCHED = SOCKETS | PROCESSES | {"time.sleep"}
MARKERS = {
    "bwrap": "bwrap",
    "chromium": "chromium",
    "influxd": "influx",
    "initdb": "postgresql",
    "mosquitto": "mosquitto",
    "mosquitto_passwd": "mosquitto",
    "rmqttd": "rmqtt",
}


def set_of(item: pytest.Item) -> str:
    """Return the set that runs a test.

    The sets are `python` (`make test`), `services`, `nightly`, or `alone` of the nightly ones.
    """
    names = {mark.name for mark in item.iter_markers()}
    for name in NIGHTLY:
        if name in names:
            return name
    return "python" if SERVICES.isdisjoint(names) else "services"


def needs_python_only(item: pytest.Item) -> bool:
    """Return whether `make test` runs a test."""
    return set_of(item) == "python"


class Guard:
    """Watches the test that runs, if it needs nothing but Python."""

    def __init__(self) -> None:
        self._watching = False
        self._may_start_python = False
        self._earlier_threads: frozenset[int | None] = frozenset()
        self._breaches: list[str] = []
        self._empty = tempfile.TemporaryDirectory(prefix="edgemeter-path-")
        self._path = os.environ.get("PATH", "")
        sys.addaudithook(self._see)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Watch a test with its fixtures.

        Threads that fixtures of several tests have started before are not watched.
        """
        if not needs_python_only(item):
            return (yield)
        self._may_start_python = item.get_closest_marker("command") is not None
        self._earlier_threads = frozenset(thread.ident for thread in threading.enumerate()) - {
            threading.get_ident()
        }
        self._breaches.clear()
        os.environ["PATH"] = self._empty.name
        self._watching = True
        try:
            return (yield)
        finally:
            self._watching = False
            os.environ["PATH"] = self._path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Any:
        """Fail a test that did something forbidden.

        The product may have caught what the hook raised, or the act was in another thread.
        """
        result = yield
        if self._breaches:
            pytest.fail(self._breaches[0], pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Watch no more where fixtures of several tests may end with this one."""
        if nextitem is None or nextitem.parent is not item.parent:
            self._watching = False
            os.environ["PATH"] = self._path
        return (yield)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            not self._watching
            or event not in WATCHED
            or threading.get_ident() in self._earlier_threads
        ):
            return
        if event == "time.sleep" and arguments == (0,):
            return
        if event == "time.sleep":
            breach = (
                "a test without a marker does not sleep: give it a clock that it moves itself, "
                "or mark it `services`"
            )
        elif event in SOCKETS:
            breach = (
                f"a test without a marker uses no socket ({event}): give it a transport in this "
                "process, or mark it `services`"
            )
        else:
            program = str(arguments[0]) if arguments else event
            if self._may_start_python and Path(program).resolve() == Path(sys.executable).resolve():
                return
            breach = (
                f"a test without a marker starts no process ({program}): mark it {_marker(program)}"
            )
        self._breaches.append(breach)
        pytest.fail(breach, pytrace=False)


def _marker(program: str) -> str:
    name = Path(program).name
    if name.startswith("python"):
        return "`services`, or `command` if it starts the command line"
    return f"`{MARKERS[name]}`" if name in MARKERS else f'`needs("{name}")`'


def _audited_sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Raise the audit event that `sleep` raises from Python 3.13 on."""
    sys.audit("time.sleep", seconds)
    sleep(seconds)


# Before the product is imported, whose functions take `time.sleep` as a default.
if sys.version_info < (3, 13):
    time.sleep = _audited_sleep
