"""Sandboxed processes reach no file, process or network but what they need.

They are the processes that open files made by others.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path

import psutil
import pytest

from edgemeter.agent.sandbox.bubblewrap import SandboxGrant, started
from edgemeter.agent.sandbox.run_grant import grant_for
from tests.fixtures import intruder
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case

CHECKOUT = Path(intruder.__file__).parents[2]
NOBODY = 65534
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
# Root has capabilities outside, and nobody has none.
by_each_user = pytest.mark.parametrize("user", ["this user", "nobody"], indirect=True)


def printed_by(code, *words, site, user=(sys.executable,), **variables):
    """Return what the Python of a user prints that runs this code with the modules in `site`."""
    path = f"{site}:{os.environ.get('PYTHONPATH', '')}:{CHECKOUT}"
    completed = subprocess.run(
        [*user, "-c", code, *map(str, words)], capture_output=True, text=True, check=False,
        cwd=CHECKOUT, start_new_session=True, timeout=100,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def user(request):
    """Return the beginning of a command that runs Python as the confined test user."""
    with tempfile.TemporaryDirectory(prefix="edgemeter-tests-of-users-") as name:
        Path(name).chmod(0o755)
        command = (sys.executable,)
        if getattr(request, "param", "this user") == "nobody":
            if os.geteuid() != 0:
                pytest.skip("only root starts processes of another user")
            prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
            command = (*prefix, str(venv(Path(name) / "venv", base_python(prefix))))
        code = (
            "from edgemeter.agent.sandbox.bubblewrap import no_sandbox; print(gap.reason if (gap "
            ":= no_sandbox()) else '')"
        )
        if reason := printed_by(code, site="", user=command).strip():
            pytest.skip(f"nothing is confined here: {reason}")
        yield command


def base_python(prefix):
    """Return a Python of this version that the user of a command prefix may start.

    The user's shell is asked.
    """
    for name in (
        Path(sys.executable).resolve(),
        f"/usr/bin/{VERSION}",
        f"/usr/local/bin/{VERSION}",
    ):
        if (
            subprocess.run(
                [*prefix, "sh", "-c", '"$0" -c pass', str(name)], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return Path(name)
    pytest.skip(f"another user may not start {VERSION} here")


def venv(folder, base, base_folder=None):
    """Make a virtual environment of links with this one's packages; return its Python."""
    (packages := folder / "lib" / VERSION / "site-packages").mkdir(parents=True, exist_ok=True)
    (python := folder / "bin" / "python").parent.mkdir()
    python.symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base_folder or base.parent}\n")
    # Also what their own .pth say, as that of a development install.
    folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "others.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in folders)
    )
    return python


@pytest.fixture
def folder(tmp_path, user):
    """Return a folder that the user of the test may open, to be given to them."""
    with (
        tempfile.TemporaryDirectory(prefix="edgemeter-tests-of-users-")
        if len(user) > 1
        else nullcontext(tmp_path) as name
    ):
        Path(name).chmod(0o755)
        yield Path(name)


def give(folder, user):
    """Let a folder, with what it holds, belong to the user of the test."""
    if len(user) > 1:
        subprocess.run(["chown", "-hR", f"{NOBODY}:{NOBODY}", str(folder)], check=True)


@pytest.fixture
def targets(folder, user):
    """Return the paths and process that an attack tries to reach.

    They are a made-up home with a key, a folder with the model, and a process of the same user with
    servers, shared memory and a key.
    """
    home, models = folder / "home", folder / "models"
    (home / ".ssh").mkdir(parents=True)
    models.mkdir()
    (home / ".ssh" / "id_ed25519").write_text("a private key")
    (models / "attack.bin").write_text("a model")
    os.utime(models / "attack.bin", (1000, 1000))
    give(folder, user)
    names = {
        "home": home,
        "key": home / ".ssh" / "id_ed25519",
        "model": models / "attack.bin",
        "service": folder / "service",
        "keyring": "edgemeter-test",
    }
    shared = 0x45000000 + os.getpid() % 65536
    pipe = subprocess.PIPE
    command = [*user, "-m", "tests.fixtures.neighbour", str(folder), str(shared)]
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, cwd=CHECKOUT, start_new_session=True, text=True
    ) as neighbour:
        reached = json.loads(neighbour.stdout.readline())
        assert reached["victim"] == neighbour.pid
        yield {**{name: str(path) for name, path in names.items()}, **reached}
        assert neighbour.communicate("")[0] == "untouched\n"
        assert neighbour.returncode == 0


STARTER = """
import json, subprocess, sys
from pathlib import Path
from edgemeter.agent.sandbox.bubblewrap import SandboxGrant, started
targets, fields = sys.argv[1], json.loads(sys.argv[2])
grant = SandboxGrant(
    **{
        name: tuple(map(Path, value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }
)
with started(sys.argv[3], [targets], grant, stdout=subprocess.PIPE) as process:
    sys.stdout.write(process.communicate()[0].decode())
"""
PRIVATE = {
    "EDGEMETER_BROKER_PASSWORD": "secret",
    "DATABASE_URL": "postgresql://user:password@host/",
}


@pytest.mark.bwrap
@by_each_user
@pytest.mark.parametrize("kind", ["run", "conversion"])
def test_native_code_reaches_nothing_outside_its_sandbox(folder, targets, user, kind):
    """Attempts on keys, files, sockets, processes and the kernel fail.

    Some only touch what is the sandbox's own. What a model needs works.
    """
    before = {process.pid for process in psutil.process_iter()}
    (site := folder / "site").mkdir()
    (site / "sandbox_attacker.py").write_text(Path(intruder.__file__).read_text())
    (folder / "out").mkdir()
    give(folder, user)
    grant = {
        "read": [targets["model"]],
        "write": [str(folder / "out")] if kind == "conversion" else [],
    }
    printed = printed_by(
        STARTER,
        json.dumps(targets),
        json.dumps(grant),
        "sandbox_attacker",
        site=site,
        user=user,
        HOME=targets["home"],
        **PRIVATE,
    )
    # For libcuda /proc of its own is writable.
    undone = (
        ["end after others where memory runs out"] if any(Path("/dev").glob("nv[ihmgs]*")) else []
    )
    assert json.loads(printed)[:2] == [undone, list(intruder.ALLOWED)]
    model = Path(targets["model"])
    assert (model.read_text(), model.stat().st_mtime, list(model.parent.iterdir())) == (
        "a model",
        1000,
        [model],
    )
    assert Path(targets["key"]).read_text() == "a private key"
    assert sorted(path.name for path in Path(targets["home"]).iterdir()) == [".ssh"]
    assert not Path("/tmp/edgemeter-planted").exists()  # noqa: S108 - it must not be there
    assert not Path("/dev/shm/edgemeter-planted").exists()  # noqa: S108 - as above
    assert str(0x45444745) not in Path("/proc/sysvipc/shm").read_text()
    # None for one that has ended meanwhile.
    later = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if process.pid not in before
    ]
    assert [
        words for words in later if "sandbox_attacker" in str(words) and str(folder) in str(words)
    ] == []


FACTORY = """
import sandbox_attacker

def make(targets):
    attacks, allowed, _ = sandbox_attacker.attack(targets)
    attacks = [name for name in attacks if name != "end after others where memory runs out"]
    if attacks or allowed != list(sandbox_attacker.ALLOWED):
        raise RuntimeError(f"succeeded: {attacks}, works: {allowed}")
    return (lambda x: x), {"x": ("float32", (1, 4))}
"""


@pytest.mark.bwrap
@by_each_user
def test_a_python_factory_is_confined_like_the_rest(folder, targets, user):
    """The factory's command succeeds only if all its attacks fail."""
    models = Path(targets["model"]).parent
    (models / "sandbox_attacker.py").write_text(Path(intruder.__file__).read_text())
    (models / "net.py").write_text(FACTORY)
    words = [
        "run",
        "-q",
        str(models / "net.py:make"),
        "--option",
        f"targets={json.dumps(targets)}",
        "--mode",
        "rapid",
        "--repeats",
        "1",
    ]
    completed = subprocess.run(
        [*user, "-m", "edgemeter.agent.cli", *words, "--format", "json"],
        capture_output=True, text=True, check=False, cwd=folder, timeout=100,
        env={
            **os.environ, "HOME": targets["home"], "EDGEMETER_HOME": str(folder / "state"),
            **PRIVATE,
        },
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert "sandbox" not in completed.stderr


@pytest.mark.bwrap
@by_each_user
def test_the_attempts_succeed_without_a_sandbox(folder, targets, user):
    """Attacks that fail anyway would prove nothing.

    Those that harm nobody succeed in a process of the same user.
    """
    harmless = [
        "read the key", "read the key by the root of another process",
        "read the key by the root of any process", "read the variables of another process",
        "read /etc/passwd", "list the home", "find a secret among its variables",
        "find another variable", "link the key", "open the key to all",
        "change the times of the key", "open the model to all by a descriptor", "connect by TCP",
        "connect to an abstract service", "connect to a local service by a pair",
        "end another process", "have signals sent to another process",
        "have signals sent to another process by a socket", "lower the priority of another process",
        "schedule another process", "schedule another process by a parameter",
        "schedule another process by attributes", "move another process to a core",
        "lower the priority of another process's files", "compare itself with another process",
        "watch another process end", "find a key of the user", "join shared memory",
        "limit another process", "change the times of the model",
        "change the times of the model by a descriptor",
    ]  # fmt: skip
    code = (
        "import json, sys; from tests.fixtures import intruder\n"
        "attempts = {name: intruder.ATTEMPTS[name] for name in json.loads(sys.argv[1])}\n"
        "print(json.dumps(intruder.succeeded(attempts, intruder.read_targets(sys.argv[2]))))"
    )
    printed = printed_by(
        code,
        json.dumps(harmless),
        json.dumps(targets),
        site=folder,
        user=user,
        TMPDIR=str(folder),
        **PRIVATE,
    )
    assert json.loads(printed) == harmless
    # As it was, for the question whether anything befell it.
    os.sched_setaffinity(targets["victim"], os.sched_getaffinity(0))


def test_a_run_on_the_cpu_opens_no_accelerator(tmp_path):
    """Only a run whose backend, library or runtime needs an accelerator may open one.

    A plug-in's runtime may open one too. A Coral also needs the USB bus.
    """
    settings = {
        False: [
            {"model": "m.tflite"}, {"model": "m.onnx", "backend": "cpu"}, {"model": "m.pt2"},
            {"model": "m.param"}, {"model": "m.tflite", "backend": "cpu-compiled"},
        ],
        True: [
            {"model": "m.onnx", "backend": "cuda"}, {"model": "m.onnx", "backend": "openvino"},
            {"model": "m.tflite", "backend": "gpu,cpu"},
            {"model": "m.onnx", "options": {"library": "libnpu.so.1"}},
            {"model": "m.tflite", "runtime": "edgetpu"}, {"model": "m.bin", "runtime": "intruder"},
        ],
    }  # fmt: skip
    for expected, rows in settings.items():
        for row in rows:
            with table_row(row):
                grant = grant_for(one_case(tmp_path / row.pop("model"), **row))
                assert (grant.accelerator, grant.usb) == (expected, row.get("runtime") == "edgetpu")


LISTER = """
import json, os, sys
from pathlib import Path
reached = {}
for name, path in json.loads(sys.argv[1]).items():
    try:
        if name == "write":
            Path(path).write_text("x")
        else:
            is_folder = os.path.isdir(path)
            reached[name] = sorted(os.listdir(path)) if is_folder else Path(path).read_text()
    except OSError as error:
        reached[name] = type(error).__name__
print(json.dumps(reached))
"""


@pytest.mark.bwrap
@by_each_user
def test_granted_paths_have_the_names_they_have_outside(folder, user):
    """Links to links, spaces in names and nested folders with other rights work.

    Nothing beside the granted paths is visible, and no absent path.
    """
    real, links, out = folder / "real data", folder / "links", folder / "real data" / "out"
    (real / "inner").mkdir(parents=True)
    out.mkdir()
    links.mkdir()
    (folder / "secret").write_text("secret")
    (real / "inner" / "model").write_text("model")
    (folder / "lone").write_text("lone")
    (folder / "far").mkdir()
    (folder / "far" / "photo").write_text("photo")
    (folder / "step").symlink_to("far")
    (real / "photo").symlink_to(folder / "step" / "photo")
    (links / "relative").symlink_to("../real data")
    (links / "absolute").symlink_to(links / "relative" / "inner")
    (links / "lone").symlink_to("../lone")
    (links / "loop").symlink_to("loop")
    (real / "out of it").symlink_to(folder / "secret")
    grant = {
        "read": [
            *(str(links / name) for name in ("absolute", "lone", "loop", "absent")),
            str(real),
            str(real / "photo"),
        ],
        "write": [str(links / "relative" / "out")],
    }
    opened = {
        "by links": links / "absolute" / "model", "lone": links / "lone", "inner": real / "inner",
        "photo": real / "photo", "out of it": real / "out of it", "secret": folder / "secret",
        "far": folder / "far", "links": links, "write": links / "relative" / "out" / "file",
    }  # fmt: skip
    (folder / "site").mkdir()
    (folder / "site" / "sandbox_lister.py").write_text(LISTER)
    give(folder, user)
    paths = json.dumps({name: str(path) for name, path in opened.items()})
    printed = printed_by(
        STARTER, paths, json.dumps(grant), "sandbox_lister", site=folder / "site", user=user
    )
    reached = json.loads(printed)
    assert {
        name: reached[name]
        for name in ("by links", "lone", "inner", "photo", "out of it", "secret")
    } == {
        "by links": "model", "lone": "lone", "inner": ["model"], "photo": "photo",
        "out of it": "FileNotFoundError", "secret": "FileNotFoundError",
    }  # fmt: skip
    assert (out / "file").read_text() == "x"


HOME_MODEL = """
import os, sys
from pathlib import Path

import numpy as np
import of_the_venv

def reach(path):
    try:
        return ",".join(sorted(os.listdir(path))) if os.path.isdir(path) else Path(path).read_text()
    except FileNotFoundError:
        return "-"

def make(weights, targets):
    reached = map(reach, [weights, *targets.split(":")])
    raise RuntimeError("|".join([of_the_venv.NAME, sys.prefix, *reached]))
"""


@pytest.mark.bwrap
@by_each_user
def test_a_virtual_environment_and_a_model_in_a_home_run_and_show_nothing_else_of_it(folder, user):
    """The interpreter lies in the home too, and the files beside it are hidden.

    It may lie behind a link with the short version, as uv's does.
    """
    home, base = folder / "home", base_python(user[:-1])
    interpreter = home / ".local" / f"{VERSION}.0"
    files = {
        ".ssh/id": "key", ".bashrc": "TOKEN=1", "work/notes": "mine", "work/photos/1": "photo",
        "work/models/beside": "of the model", "work/models/net.py": HOME_MODEL,
        "weights": "weights", f".local/{VERSION}.0/lib/libpart.so": "part",
        f"venv/lib/{VERSION}/site-packages/of_the_venv.py": "NAME = 'venv'",
    }  # fmt: skip
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    # A copy, which finds its libraries from where it really lies.
    (interpreter / "bin").mkdir()
    shutil.copy2(base, interpreter / "bin" / VERSION)
    (interpreter / "lib" / VERSION).symlink_to(
        printed_by("import os; print(os.path.dirname(os.__file__))", site="", user=user).strip()
    )
    (home / ".local" / VERSION).symlink_to(interpreter.name)
    python = venv(home / "venv", interpreter / "bin" / VERSION, home / ".local" / VERSION / "bin")
    give(folder, user)
    reached = {
        ".ssh": "-", ".ssh/id": "-", ".bashrc": "-", "work/notes": "-", "work/photos/1": "-",
        "work/models": "beside,net.py", "work": "models", ".": ".local,venv,weights,work",
        f".local/{VERSION}.0/lib/libpart.so": "part",
    }  # fmt: skip
    options = {
        "weights": home / "weights",
        "targets": ":".join(str(home / name) for name in reached),
    }
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    completed = subprocess.run(
        [
            *user[:-1], str(python), "-m", "edgemeter.agent.cli", "run", "-q",
            str(home / "work/models/net.py:make"), *words,
        ],
        capture_output=True, text=True, check=False, cwd=folder, timeout=100,
        env={**os.environ, "HOME": str(home), "EDGEMETER_HOME": str(home / ".local" / "state")},
    )  # fmt: skip
    raised = "|".join(["venv", str(home / "venv"), "weights", *reached.values()])
    assert f"the factory raised RuntimeError: {raised} (line" in completed.stderr


DEVICES = """
import os, sys, threading
from pathlib import Path
print(*(int(Path(path).exists()) for path in sys.argv[1].split()))
def name():
    try:
        Path(f"/proc/self/task/{os.getpid()}/comm").write_text("named")
        print("named")
    except OSError:
        print("refused")
thread = threading.Thread(target=name)
thread.start()
thread.join()
"""


@pytest.mark.bwrap
def test_devices_are_there_by_grant(tmp_path):
    """A grant shows the accelerator nodes that this machine has, or the USB bus.

    What describes the bus is visible too, and Coral's library by its package.
    """
    (tmp_path / "sandbox_devices.py").write_text(DEVICES)
    present = [
        path
        for path in ("/dev/dri", "/dev/nvidiactl", "/dev/apex_0", "/dev/hailo0")
        if Path(path).exists()
    ]
    usb = [
        path
        for path in (
            "/dev/bus/usb",
            "/sys/bus/usb",
            "/run/udev",
            "/var/lib/dpkg/info",
            "/var/lib/dpkg/status",
        )
        if Path(path).exists()
    ]
    has_nvidia = any(Path("/dev").glob("nv[ihmgs]*"))
    for grant, expected in (
        (
            SandboxGrant(accelerator=False),
            [*[0] * len(present), *(int("/dev/bus" not in path) for path in usb)],
        ),
        (SandboxGrant(usb=True), [1] * len(present + usb)),
    ):
        fields = json.dumps({"accelerator": grant.accelerator, "usb": grant.usb})
        printed = printed_by(
            STARTER, " ".join(present + usb), fields, "sandbox_devices", site=tmp_path
        )
        lines = [line for line in printed.splitlines() if line]
        assert [int(word) for line in lines[:-1] for word in line.split()] == expected
        # libcuda (580 on an H200, CUDA 13) ends in error 304 where it cannot name its threads.
        assert lines[-1] == ("named" if grant.accelerator and has_nvidia else "refused")


NAMESPACE = """
import ctypes
from pathlib import Path
is_filtered = "Seccomp:\\t0\\n" not in Path("/proc/self/status").read_text()
print(is_filtered, ctypes.CDLL(None).unshare(0x10000000) == 0)
"""


@pytest.mark.bwrap
@by_each_user
def test_system_calls_are_not_filtered_and_only_root_makes_user_namespaces_inside(folder, user):
    """The page docs/install.md says so, and bubblewrap before 0.8 cannot refuse them."""
    if (
        b"--disable-userns"
        not in subprocess.run(["bwrap", "--help"], capture_output=True, check=True).stdout
    ):
        pytest.skip("this bubblewrap has no --disable-userns")
    (folder / "sandbox_namespace.py").write_text(NAMESPACE)
    give(folder, user)
    is_root = len(user) == 1 and os.geteuid() == 0
    assert printed_by(STARTER, "", "{}", "sandbox_namespace", site=folder, user=user).split() == [
        "False",
        str(is_root),
    ]


CLIENT = """
import json, socket, sys
try:
    socket.create_connection(("localhost", int(sys.argv[1])), timeout=5).close()
    print(json.dumps(True))
except OSError:
    print(json.dumps(False))
"""


@pytest.mark.bwrap
def test_a_client_of_a_server_has_the_network_and_a_run_has_none(tmp_path):
    """The server is given by a name, which has to be looked up.

    The grant of a model at an address is that of the host's network.
    """
    (tmp_path / "sandbox_client.py").write_text(CLIENT)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (tmp_path / "m.server").write_text(f'url = "http://localhost:{port}"\nprotocol = "oip"\n')
        for grant, expected in (
            (grant_for(one_case(tmp_path / "m.server")), True),
            (SandboxGrant(), False),
        ):
            printed = printed_by(
                STARTER,
                port,
                json.dumps({"network": grant.network}),
                "sandbox_client",
                site=tmp_path,
            )
            assert json.loads(printed) is expected


NESTED = """
import json, subprocess
from edgemeter.agent.sandbox.bubblewrap import SandboxGrant, is_inside, note_of, started
print(json.dumps([is_inside(), note_of(SandboxGrant())]), flush=True)
if __name__ == "__main__" and not __import__("os").environ.get("PYTHON_NESTED"):
    __import__("os").environ["PYTHON_NESTED"] = "1"
    with started("sandbox_nested", [], SandboxGrant()) as process:
        process.wait()
"""


@pytest.mark.bwrap
@by_each_user
def test_what_a_sandboxed_process_starts_in_a_sandbox_is_in_its_own(folder, user):
    """A conversion that inspects its output is an example of such a process.

    There is nothing to report, and code may be opened.
    """
    (folder / "sandbox_nested.py").write_text(NESTED)
    printed = printed_by(STARTER, "", "{}", "sandbox_nested", site=folder, user=user)
    assert [json.loads(line) for line in printed.splitlines()] == [[True, None]] * 2


@pytest.mark.bwrap
def test_a_death_inside_is_seen_outside_as_it_was(tmp_path, monkeypatch):
    """The exit status and the signal are passed on.

    The process's number is the one outside, by which its memory is read.
    """
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "sandbox_dying.py").write_text(
        "import os, sys; print(1, flush=True); sys.stdin.read(); exec(sys.argv[1])\n"
    )
    for code, status in (
        ("os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("os.abort()", -signal.SIGABRT),
        ("sys.exit(3)", 3),
        ("0", 0),
    ):
        with started(
            "sandbox_dying", [code], SandboxGrant(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            assert "sandbox_dying" in Path(f"/proc/{process.inner_pid}/cmdline").read_text()
            process.communicate()
            assert (code, process.status) == (code, status)
    with started(
        "sandbox_dying", ["0"], SandboxGrant(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        os.kill(process.inner_pid, signal.SIGKILL)
        process.communicate()
        assert process.status == -signal.SIGKILL


@pytest.mark.bwrap
@by_each_user
def test_a_sandboxed_process_ends_with_the_process_that_started_it(folder, monkeypatch, user):
    """No model runs on, even if its starter is killed and cannot end it."""
    (folder / "sandbox_sleeper.py").write_text(
        "import time\nprint(1, flush=True)\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}:{CHECKOUT}")
    code = (
        "import subprocess, time; from edgemeter.agent.sandbox.bubblewrap "
        "import SandboxGrant, started\n"
        "with started('sandbox_sleeper', [], SandboxGrant(), stdout=subprocess.PIPE) as process:\n"
        "    process.stdout.readline()\n    print(process.inner_pid, flush=True)\n    "
        "time.sleep(600)\n"
    )
    with subprocess.Popen([*user, "-c", code], stdout=subprocess.PIPE, cwd=CHECKOUT) as parent:
        sleeper = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert psutil.wait_procs([sleeper], timeout=60)[1] == []


# Namespaces are counted in each namespace of users: this one and what it starts has none left, as
# after the setting of a careful owner.
NO_NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "sh",
    "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"',
)


@pytest.mark.services
@pytest.mark.parametrize(
    "lack", ["bubblewrap", pytest.param("namespaces", marks=pytest.mark.bwrap)]
)
def test_a_machine_that_confines_nothing_runs_models_and_says_so(tmp_path, lack):
    """The command prints one line, which the record holds too.

    `doctor` has the remedy. Without the owner's consent there is no unconfined conversion.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("choom", "prlimit", "sh"):
        (programs / name).symlink_to(shutil.which(name))
    (tmp_path / "net.py").write_text(
        'def make():\n    return (lambda x: x), {"x": ("float32", (1, 4))}\n'
    )
    (tmp_path / "net.onnx").write_bytes(
        (CHECKOUT / "tests/fixtures/runtimes/onnx.onnx").read_bytes()
    )
    environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path / "state")}
    prefix, reason = NO_NAMESPACES, "bubblewrap does not start (Creating new namespace failed: "
    if lack == "bubblewrap":
        prefix, reason = (), "bubblewrap is not installed"
        environment["PATH"] = str(programs)
    elif subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace of users can be made to take more from")

    def command(*words):
        words = [*prefix, sys.executable, "-m", "edgemeter.agent.cli", *words]
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=100,
            env=environment,
        )

    ran = command(
        "run", "-q", "net.py:make", "--mode", "rapid", "--repeats", "1", "--format", "json"
    )
    (measured,) = (document := json.loads(ran.stdout)).get("runs", [document])
    note = measured["runtime"]["facts"]["sandbox"]
    assert note.startswith(f"none: {reason}")
    assert ran.stderr.count(f"sandbox: {note}") == 1
    converted = command("models", "convert", "net.onnx", "--to", "onnx-int8")
    assert converted.returncode != 0
    findings = json.loads(command("doctor", "--format", "json").stdout)
    (finding,) = (row for row in findings["findings"] if row["name"] == "sandbox")
    assert finding["state"] == "warn"
    assert (
        f"none, because {note.removeprefix('none: ')}: a model can read and change all your files"
        in finding["what"]
    )
    assert (
        "max_user_namespaces" if lack == "namespaces" else "`sudo apt install bubblewrap`"
    ) in finding["remedy"]
    assert (
        f"no sandbox, because {note.removeprefix('none: ')}: {finding['remedy']}, or "
        in converted.stderr
    )


@pytest.mark.services
def test_a_kernel_that_refuses_namespaces_has_its_own_words_and_remedy(tmp_path):
    """In a container, and on Ubuntu 24.04, bubblewrap is present and reports what failed."""
    (tmp_path / "bwrap").write_text(
        "#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2\nexit 1\n"
    )
    (tmp_path / "bwrap").chmod(0o755)
    code = (
        "from edgemeter.agent.sandbox.bubblewrap import no_sandbox; gap = no_sandbox(); "
        "print(gap.reason); print(gap.remedy)"
    )
    reason, remedy = printed_by(code, site=tmp_path, PATH=str(tmp_path)).splitlines()
    assert reason == "bubblewrap does not start (setting up uid map: Permission denied)"
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in remedy


@pytest.mark.services
def test_an_interrupt_while_a_sandbox_starts_leaves_no_process(tmp_path):
    """The signal comes after bubblewrap has started but before its caller knows of it.

    Bubblewrap is then waiting for its map of ids.
    """
    code = """if True:
        import signal
        from edgemeter.agent.base import interrupts
        from edgemeter.agent.sandbox import bubblewrap
        bubblewrap.no_sandbox()

        def interrupted(process, command, start=bubblewrap.SandboxProcess.__init__, **options):
            start(process, command, **options)
            print(process.pid, flush=True)
            signal.raise_signal(signal.SIGINT)

        bubblewrap.SandboxProcess.__init__ = interrupted
        interrupts.handle()
        with bubblewrap.started("http.server", ["0"], bubblewrap.SandboxGrant(), stdin=-1):
            print("the interrupt was lost")
    """
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False
    )
    assert (ended.stderr.splitlines()[-1], list(tmp_path.iterdir())) == ("KeyboardInterrupt", [])
    remaining = []
    for process in psutil.process_iter(["cmdline", "status"]):
        with suppress(ProcessLookupError):
            if (
                os.getpgid(process.pid) == int(ended.stdout)
                and process.info["status"] != psutil.STATUS_ZOMBIE
            ):
                remaining.append(process.info["cmdline"])
    assert remaining == []
