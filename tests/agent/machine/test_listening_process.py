"""Facts about the memory of a server on this machine: found by its port, with the processes that work for it."""

import subprocess
import sys

from edgemeter.agent.machine.listening_process import listening_memory_mb
from tests.fixtures.servers import free_port

SERVE = """
import socket, subprocess, sys
server = socket.socket()
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
ballast = b"x" * 60_000_000
if sys.argv[2] == "1":
    child = "import sys; ballast = b'x' * 40_000_000; print(1, flush=True); sys.stdin.read()"
    worker = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
"""


def served_mb(*, has_worker: bool) -> float | None:
    """Return the memory that is found of a server with 60 MB of its own, and of a worker with 40."""
    port = free_port()
    command = [sys.executable, "-c", SERVE, str(port), str(int(has_worker))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        memory_mb, reason = listening_memory_mb(port)
        process.communicate()
    assert reason is None
    return memory_mb


def test_the_memory_is_that_of_the_process_that_listens():
    """60 MB and an interpreter."""
    assert 60 < served_mb(has_worker=False) < 100


def test_the_processes_that_work_for_it_count():
    """What both share counts once."""
    assert 100 < served_mb(has_worker=True) < 150


def test_a_port_that_nobody_listens_at_has_a_reason():
    """No memory, and no zero."""
    port = free_port()
    assert listening_memory_mb(port) == (None, f"no process of this machine listens at port {port}")


def test_a_server_of_another_user_has_a_reason(tmp_path):
    """Its sockets are listed for everybody, its files are not."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text("header\n 0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4242 1 x\n")
    (tmp_path / "17").mkdir()
    assert listening_memory_mb(8080, str(tmp_path)) == (None, "no process has the server's socket open")
