"""Facts about the sandbox of the measured process: native code in it reaches no file, process or network but what its run needs."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.sandbox import landlock
from tests.fixtures import intruder
from tests.fixtures.plugin_site import install

pytestmark = pytest.mark.skipif(landlock.abi() is None, reason="this kernel has no Landlock")


@pytest.fixture
def targets(tmp_path):
    """Return a made-up home with a key, a folder with the model, a TCP server and a local service."""
    home, folder = tmp_path / "home", tmp_path / "models"
    (home / ".ssh").mkdir(parents=True)
    folder.mkdir()
    key = home / ".ssh" / "id_ed25519"
    key.write_text("a private key")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(str(tmp_path / "service"))
        yield {"home": str(home), "key": str(key), "service": str(tmp_path / "service"), "port": server.getsockname()[1]}


def run(tmp_path, targets, **variables):
    """Return the record of a run of the intruder, as a user's command writes it."""
    install(tmp_path / "site", "edgemeter-intruder", [(runtimes.ENTRY_POINTS, "intruder", "intruder_plugin:Intruder")], "")
    (tmp_path / "site" / "intruder_plugin.py").write_text(Path(intruder.__file__).read_text())
    model = tmp_path / "models" / "attack.bin"
    model.write_text(json.dumps(targets))
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli",
        "run",
        "-q",
        str(model),
        "--runtime",
        "intruder",
        "--mode",
        "rapid",
        "--repeats",
        "1",
    ]
    path = f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}"
    completed = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100,
        env={**os.environ, "PYTHONPATH": path, "HOME": targets["home"], "EDGEMETER_HOME": str(tmp_path / "state"), **variables},
    )  # fmt: skip
    return json.loads(completed.stdout), completed.stderr


def test_native_code_reaches_nothing_outside_its_run(tmp_path, targets):
    """Forty attempts on keys, files, sockets, processes and the kernel fail; what a model needs works; the record states the protection."""
    before = {process.pid for process in psutil.process_iter()}
    document, errors = run(tmp_path, targets, EDGEMETER_BROKER_PASSWORD="secret")
    (measured,) = document.get("runs", [document])
    facts = measured["runtime"]["facts"]
    assert json.loads(facts["attacks"]) == [], errors
    assert json.loads(facts["allowed"]) == list(intruder.ALLOWED)
    assert measured["sandbox"] == {"landlock_abi": landlock.abi(), "seccomp": True, "missing": []}
    assert Path(targets["key"]).read_text() == "a private key"
    assert sorted(path.name for path in Path(targets["home"]).iterdir()) == [".ssh"]
    assert [
        process.cmdline() for process in psutil.process_iter() if process.pid not in before and "intruder" in str(process.cmdline())
    ] == []


def test_the_attempts_succeed_without_a_sandbox(tmp_path, targets):
    """A test whose attacks fail anyway would prove nothing: those that harm nobody succeed in a process of the same user."""
    harmless = [
        "read the key", "read the key by the root of another process", "read the variables of its parent", "read /etc/passwd",
        "list the home", "find a secret among its variables", "link the key", "open the key to all", "change the times of the key",
        "connect by TCP", "send by UDP", "connect to a local service by a pair", "listen", "run a program", "end its parent",
    ]  # fmt: skip
    code = (
        "import json, pathlib, sys; from tests.fixtures import intruder\n"
        "named, to = json.loads(sys.argv[1]), json.loads(sys.argv[2])\n"
        "to = {name: pathlib.Path(value) if isinstance(value, str) else value for name, value in to.items()}\n"
        "print(json.dumps(intruder.succeeded({name: intruder.ATTEMPTS[name] for name in named}, to)))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, json.dumps(harmless), json.dumps(targets)],
        capture_output=True, text=True, check=True, cwd=Path(intruder.__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path), "EDGEMETER_BROKER_PASSWORD": "secret"},
    )  # fmt: skip
    assert json.loads(completed.stdout) == harmless
