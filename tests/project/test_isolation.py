"""Tests that a test without a marker fails everywhere if it needs more than Python.

It fails with one line that says what to do. No set of tests is too large.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = """import socket, subprocess, sys, threading, time

import pytest

def test_broker():
    try:
        subprocess.run(["mosquitto", "-h"], check=False)
    except OSError:
        pass

def test_sleep():
    time.sleep(0.001)

def test_thread():
    thread = threading.Thread(target=quietly)
    thread.start()
    thread.join()

def quietly():
    try:
        time.sleep(0.001)
    except BaseException:
        pass

def test_socket():
    socket.create_connection(("127.0.0.1", 9))

def test_skip():
    pytest.skip("not here")

def test_python():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.command
def test_command():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.services
def test_services():
    subprocess.run([sys.executable, "-c", ""], check=True)
    time.sleep(0.001)
"""
SLEEPS = (
    "a test without a marker does not sleep: give it a clock that it moves itself, or "
    "mark it `services`"
)
FAILURES = {
    "test_broker": "a test without a marker starts no process (mosquitto): mark it `mosquitto`",
    "test_sleep": SLEEPS,
    "test_thread": SLEEPS,
    "test_socket": (
        "uses no socket (socket.getaddrinfo): give it a transport in this process, or "
        "mark it `services`"
    ),
    "test_skip": (
        "test_planted.py::test_skip is skipped: mark what it needs (tests/requirements.py)"
    ),
    "test_python": (
        f"({sys.executable}): mark it `services`, or `command` if it starts the command line"
    ),
}


@pytest.mark.services
def test_a_forgotten_marker_fails_with_one_line(tmp_path):
    """A forgotten marker fails the test with one line; a test with a marker passes.

    It fails also where the product catches the error, and in a thread of its own.
    """
    (tmp_path / "test_planted.py").write_text(PLANTED)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
    ]
    result = subprocess.run(
        [*command, tmp_path / "test_planted.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{len(FAILURES)} failed, 2 passed" in result.stdout, result.stdout
    for name, line in FAILURES.items():
        failure = result.stdout.partition(f"_ {name} _")[2].partition("\n___")[0]
        assert line in failure, result.stdout


HANGING = """import subprocess, sys

import pytest

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]

@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()

@pytest.mark.services
@pytest.mark.limit_s(1)
def test_waiting(server):
    subprocess.run(SLEEP, check=False)

@pytest.mark.services
@pytest.mark.limit_s(1)
def test_reading(server):
    assert server.poll() is None
    process = subprocess.Popen(SLEEP, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.read()

@pytest.mark.services
@pytest.mark.limit_s(60)
def test_quick(server):
    assert server.poll() is None
    subprocess.run([sys.executable, "-c", ""], check=True)
"""


@pytest.mark.services
def test_a_process_that_hangs_fails_its_test_with_its_command(tmp_path):
    """A process that hangs fails its test, with its command, whatever waits for it.

    A server of several tests goes on.
    """
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rN",
        "-p",
        "tests.conftest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
    ]
    result = subprocess.run(
        [*command, tmp_path / "test_hanging.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed" in result.stdout, result.stdout
    line = (
        f"hung, and was ended after 1 s: {sys.executable} -c 'import time; time.sleep(600)': "
        "mark a test that needs longer"
    )
    assert result.stdout.count(line) == 2
