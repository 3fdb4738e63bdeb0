"""The memory of a server on this machine is found by the address of its model.

A record has a reason where the memory cannot be seen.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.machine.served_memory import served_memory
from edgemeter.agent.session import session
from tests.fixtures.suite_files import read_suite

BALLAST_MB, WORKER_MB = 200, 120
SERVE = """
import subprocess, sys
from tests.fixtures.language_server import llama_server
server = llama_server()
ballast = bytearray(b"x") * (int(sys.argv[1]) * 1_000_000)
work = (
    "import sys; ballast = bytearray(b'x') * (int(sys.argv[1]) * 1_000_000); "
    "print(1, flush=True); sys.stdin.read()"
)
worker = subprocess.Popen(
    [sys.executable, "-c", work, sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
worker.stdout.readline()
del ballast
print(server.url, flush=True)
sys.stdin.read()
"""


@contextmanager
def served(worker_mb: int) -> Iterator[str]:
    """Yield the address of a server that once needed much memory, with a worker process."""
    command = [sys.executable, "-c", SERVE, str(BALLAST_MB), str(worker_mb)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def measured(folder: Path, url: str) -> RunRecord:
    (folder / "tiny.server").write_text(f'url = "{url}"\n')
    path = folder / "suite.toml"
    path.write_text(
        'name = "s"\n[defaults]\nmode = "rapid"\nrepeats = 1\n[[case]]\nmodel = "tiny.server"\n'
        "prompt_tokens = 20\noutput_tokens = 6\n"
    )
    (record,) = session.measure(
        read_suite(path), session.DeviceIdentity("bench", "lab"), {}, "no sensor", lambda _: None
    )
    assert isinstance(record, RunRecord), record
    return record


@pytest.mark.services
def test_the_memory_of_a_served_run_is_the_highest_of_its_server(tmp_path):
    """The peak before the run and the memory of worker processes count; the client's does not.

    Nor does that of another server at the same port of 127.0.0.2, which is this machine too.
    """
    listen = (
        "import socket, sys; server = socket.create_server(('127.0.0.2', int(sys.argv[1]))); "
        "print(1, flush=True); sys.stdin.read()"
    )
    with served(WORKER_MB) as url:
        record = measured(tmp_path, url)
        port = url.rpartition(":")[2]
        command = [sys.executable, "-c", listen, port]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert served_memory(f"http://127.0.0.2:{port}")[0].peak_mb < BALLAST_MB / 4
            process.communicate()
    memory = record.memory
    assert BALLAST_MB + WORKER_MB < memory.peak_mb < BALLAST_MB + WORKER_MB + 80
    assert "memory_peak_mb" not in record.reasons
    assert memory.loaded_mb is None


def recorded(folder: Path, port: int, **files: str) -> str:
    """Write the tree of a machine whose process 17 listens at 127.0.0.1 and `port`.

    The tree holds only what is seen.
    """
    (folder / "net").mkdir()
    (folder / "net/tcp").write_text(
        f"header\n 0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 1000 0 4242 1 x\n"
    )
    (folder / "17/fd").mkdir(parents=True)
    for name, content in files.items():
        (folder / "17" / name).write_text(content)
    return str(folder)


@pytest.mark.services
def test_the_memory_of_what_passes_connections_on_is_no_servers(tmp_path):
    """A tunnel or a container's proxy has a few MB, whatever model is behind it."""
    proc = recorded(tmp_path, 8080, comm="docker-proxy\n", status="VmHWM:\t4000 kB\n")
    (tmp_path / "17/fd/3").symlink_to("socket:[4242]")
    memory, reason = served_memory("http://127.0.0.1:8080", proc)
    assert memory.peak_mb is None
    assert "docker-proxy passes its connections on" in reason
    # Its socket is listed for everybody, what it has open is not.
    (tmp_path / "17/fd/3").unlink()
    assert "belong to another user" in served_memory("http://127.0.0.1:8080", proc)[1]
    assert (
        "no process that is seen here listens at port 8081"
        in served_memory("http://127.0.0.1:8081", proc)[1]
    )
