"""Facts about the sandbox of the measured process: native code in it reaches no file, process or network but what its run needs."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.engine.confinement import grant_for
from edgemeter.agent.sandbox import confine, landlock, policy, seccomp
from tests.fixtures import intruder, lesser_kernel
from tests.fixtures.plugin_site import install
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case

CHECKOUT = Path(intruder.__file__).parents[2]
with_landlock = pytest.mark.skipif(landlock.abi() is None, reason="this kernel has no Landlock")
# As an ordinary user, by the same owner of files and without capabilities.
ORDINARY = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
WITHOUT_LANDLOCK = (*ORDINARY, *lesser_kernel.command([lesser_kernel.LANDLOCK]))


def is_refused(*command):
    """Return whether this machine does not let the command run."""
    return (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "true"], check=False, capture_output=True, cwd=CHECKOUT).returncode != 0
    )


with_namespaces = pytest.mark.skipif(is_refused(*ORDINARY, "unshare", "--user", "--mount"), reason="no namespaces for ordinary users")


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


def run(tmp_path, targets, *kernel, **variables):
    """Return the record of a run of the intruder, as a user's command writes it on this kernel or on the one of a prefix."""
    install(tmp_path / "site", "edgemeter-intruder", [(runtimes.ENTRY_POINTS, "intruder", "intruder_plugin:Intruder")], "")
    (tmp_path / "site" / "intruder_plugin.py").write_text(Path(intruder.__file__).read_text())
    model = tmp_path / "models" / "attack.bin"
    model.write_text(json.dumps(targets))
    words = ["run", "-q", str(model), "--runtime", "intruder", "--mode", "rapid", "--repeats", "1"]
    command = [*kernel, sys.executable, "-m", "edgemeter.agent.cli", *words]
    path = f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}{f':{CHECKOUT}' * bool(kernel)}"
    completed = subprocess.run(
        [*command, "--format", "json"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100,
        env={**os.environ, "PYTHONPATH": path, "HOME": targets["home"], "EDGEMETER_HOME": str(tmp_path / "state"), **variables},
    )  # fmt: skip
    return json.loads(completed.stdout), completed.stderr


def printed_by(code, *words, site, kernel=(), **variables):
    """Return what a process prints that runs this code with the modules in `site`, on this kernel or on the one of a prefix."""
    path = f"{site}:{os.environ.get('PYTHONPATH', '')}:{CHECKOUT}"
    completed = subprocess.run(
        [*kernel, sys.executable, "-c", code, *map(str, words)],
        capture_output=True, text=True, check=False, cwd=CHECKOUT, start_new_session=True,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.services
@pytest.mark.parametrize(
    "kernel",
    [pytest.param((), marks=with_landlock, id="Landlock"), pytest.param(WITHOUT_LANDLOCK, marks=with_namespaces, id="namespaces")],
)
def test_native_code_reaches_nothing_outside_its_run(tmp_path, targets, kernel):
    """63 attempts on keys, files, sockets, processes and the kernel fail; what a model needs works; nothing of the protection is missing.

    The kernel of Raspberry Pi OS has no Landlock: there they fail by a root directory of the process's own.
    """
    before = {process.pid for process in psutil.process_iter()}
    document, errors = run(tmp_path, targets, *kernel, EDGEMETER_BROKER_PASSWORD="secret")
    (measured,) = document.get("runs", [document])
    facts = measured["runtime"]["facts"]
    assert json.loads(facts["attacks"]) == [], errors
    assert json.loads(facts["allowed"]) == list(intruder.ALLOWED)
    assert "sandbox:" not in errors
    assert Path(targets["key"]).read_text() == "a private key"
    assert sorted(path.name for path in Path(targets["home"]).iterdir()) == [".ssh"]
    # None for one that has ended meanwhile.
    later = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process.pid not in before]
    assert [words for words in later if "intruder" in str(words) and str(tmp_path) in str(words)] == []


@pytest.mark.services
def test_the_attempts_succeed_without_a_sandbox(tmp_path, targets):
    """A test whose attacks fail anyway would prove nothing: those that harm nobody succeed in a process of the same user."""
    harmless = [
        "read the key", "read the key by the root of another process",
        "read the key by the root of any process", "read the variables of its parent", "read /etc/passwd",
        "list the home", "find a secret among its variables", "link the key", "open the key to all", "change the times of the key",
        "connect by TCP", "send by UDP", "connect to a local service by a pair", "listen", "run a program", "end its parent",
        "limit its parent's time", "have signals sent to its parent", "have signals sent to its parent by a socket",
        "lower the priority of its parent", "schedule its parent", "schedule its parent by a parameter",
        "schedule its parent by attributes", "lower the priority of its parent's files", "compare its parent with others",
        "compare itself with its parent",
    ]  # fmt: skip
    code = (
        "import json, pathlib, sys; from tests.fixtures import intruder\n"
        "named, to = json.loads(sys.argv[1]), json.loads(sys.argv[2])\n"
        "to = {name: pathlib.Path(value) if isinstance(value, str) else value for name, value in to.items()}\n"
        "print(json.dumps(intruder.succeeded({name: intruder.ATTEMPTS[name] for name in named}, to)))"
    )
    variables = {"TMPDIR": str(tmp_path), "EDGEMETER_BROKER_PASSWORD": "secret"}
    assert json.loads(printed_by(code, json.dumps(harmless), json.dumps(targets), site=tmp_path, **variables)) == harmless


OTHERS = (
    "end its parent", "trace its parent", "limit its parent", "limit its parent's time", "have signals sent to its parent",
    "have signals sent to its parent by a socket", "lower the priority of its parent", "lower the priority of its parent's group",
    "schedule its parent", "schedule its parent by a parameter", "schedule its parent by attributes",
    "lower the priority of its parent's files", "move the memory of its parent", "move its parent to other memory",
    "compare its parent with others", "compare itself with its parent", "change the times of the key", "open the key to all",
    "change the key's attributes", "change the attributes of the key's file",
)  # fmt: skip
ATTACKER = """
import json, os, subprocess, sys
from pathlib import Path
import intruder_plugin as intruder

def copy(_):
    file = os.open(Path(os.environ["TMPDIR"]) / "copied", os.O_CREAT | os.O_WRONLY)
    os.utime(file, (1, 1))
    os.fchmod(file, 0o600)

further = {
    "give what it wrote times and a mode": copy,
    "run a program": intruder.ATTEMPTS["run a program"],
    "limit a program": lambda _: subprocess.run(["/bin/sh", "-c", "ulimit -n 64"], check=True),
}
attempts = {name: intruder.ATTEMPTS[name] for name in json.loads(sys.argv[1])}
print(json.dumps([intruder.succeeded(attempts, {"key": Path(sys.argv[2])}), intruder.succeeded(further, {})]))
"""
ATTACKERS = """
import subprocess, sys
from edgemeter.agent.sandbox.policy import SandboxGrant, started
for processes in (True, False):
    with started("sandbox_attacker", sys.argv[1:], SandboxGrant(processes=processes), stdout=subprocess.PIPE) as process:
        sys.stdout.write(process.communicate()[0].decode())
        sys.stdout.flush()
"""


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param((), marks=(with_landlock, pytest.mark.services), id="Landlock"),
        pytest.param(WITHOUT_LANDLOCK, marks=(with_namespaces, pytest.mark.nightly), id="namespaces"),
    ],
)
def test_a_conversion_starts_programs_and_acts_on_no_process_of_others_nor_on_files_by_path(tmp_path, targets, kernel):
    """A factory too: limits, signals, priorities, memory, times. By descriptor it changes what it was let open; a run starts nothing."""
    (tmp_path / "intruder_plugin.py").write_text(Path(intruder.__file__).read_text())
    (tmp_path / "sandbox_attacker.py").write_text(ATTACKER)
    printed = printed_by(ATTACKERS, json.dumps(OTHERS), targets["key"], site=tmp_path, kernel=kernel)
    of_conversion, of_run = map(json.loads, printed.splitlines())
    further = ["give what it wrote times and a mode", "run a program", "limit a program"]
    assert (of_conversion, of_run) == ([[], further], [[], []])


def judged(program, architecture, number, *arguments):
    """Return whether a filter allows a system call: classic BPF on struct seccomp_data, as far as the filter uses it."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator = position = 0
    while True:
        code, if_true, if_false, value = program[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return value == 0x7FFF0000
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            position += if_true if holds else if_false


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [
        ("x86_64", {"prlimit64": 302, "utimensat": 280, "setpriority": 141, "kill": 62, "fcntl": 72, "read": 0, "chmod": 90}),
        ("aarch64", {"prlimit64": 261, "utimensat": 88, "setpriority": 140, "kill": 129, "fcntl": 25, "read": 63, "chmod": 53}),
        ("arm", {"prlimit64": 369, "utimensat": 348, "setpriority": 97, "kill": 37, "fcntl": 221, "read": 3, "chmod": 15}),
        ("arm", {"prlimit64": 369, "utimensat": 412, "setpriority": 97, "kill": 37, "fcntl": 55, "read": 3, "chmod": 333}),
    ],
)
def test_the_filter_of_a_conversion_is_the_same_on_every_machine(machine, numbers):
    """Limits and priorities of itself alone, times of a descriptor alone; the numbers are those of the kernel's own tables."""
    rules = seccomp._rules("none", processes=True, signals=False, devices=True, pid=77)
    program, architecture = seccomp._program(rules, seccomp._MACHINES[machine]), seccomp._MACHINES[machine][1]
    struct.pack(f"<{2 * len(program)}B", *(jump for _, *jumps, _ in program for jump in jumps))
    expected = {
        ("prlimit64", 0): True, ("prlimit64", 77): True, ("prlimit64", 78): False, ("setpriority", 0, 0): True,
        ("setpriority", 0, 78): False, ("setpriority", 1, 0): False, ("setpriority", 2, 0): False, ("kill", 77): True, ("kill", 78): False,
        ("kill", 2**32 - 1): False, ("utimensat", 5, 0): True, ("utimensat", 5, 0x7FFF0000): False, ("fcntl", 5, 1): True,
        ("fcntl", 5, 8, 78): False, ("fcntl", 5, 15, 0x7FFF0000): False, ("chmod", 0x7FFF0000): False, ("read", 5): True,
    }  # fmt: skip
    assert {call: judged(program, architecture, numbers[call[0]], *call[1:]) for call in expected} == expected
    # The lower half of an address of 64 bits may be 0.
    assert not judged(program, architecture, numbers["utimensat"], 5, 1 << 32)


def test_a_run_on_the_cpu_opens_no_accelerator(tmp_path):
    """Neither by its runtime or backend nor by a library that an option names; a plug-in's runtime may."""
    settings = {
        False: [{"model": "m.tflite"}, {"model": "m.onnx", "backend": "cpu"}, {"model": "m.pt2"}, {"model": "m.param"},
                {"model": "m.tflite", "backend": "cpu-compiled"}],
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
                assert grant_for(one_case(tmp_path / row.pop("model"), **row)).accelerator is expected


def test_a_server_is_reached_at_the_port_of_its_address(tmp_path):
    """With TLS that is 443 where none is stated, over gRPC too."""
    model = tmp_path / "m.server"
    for url, port in (("https://h/v1", 443), ("http://h", 80), ("http://h:8001", 8001)):
        model.write_text(f'url = "{url}"\nprotocol = "oip"\n')
        assert grant_for(one_case(model)).tcp_port == port


FILES = """
import json, os, sys
from pathlib import Path
from edgemeter.agent.sandbox import confine
folder, opened = Path(sys.argv[1]), []
existing = (("there", flags) for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY))
new, unnamed = ("new", os.O_RDWR | os.O_CREAT), (".", os.O_TMPFILE | os.O_RDWR)
for name, flags in (*existing, new, unnamed):
    try:
        os.close(os.open(folder / name, flags, 0o600))
        opened.append([name, flags])
    except PermissionError:
        pass
print(json.dumps({"opened": opened, "missing": confine.sandbox().missing, "mounts": confine.sandbox().mounts}))
"""
STARTER = """
import subprocess, sys
from edgemeter.agent.sandbox.policy import SandboxGrant, started
for grant in (SandboxGrant(accelerator=False), SandboxGrant(), SandboxGrant(processes=True)):
    with started("sandbox_files", [sys.argv[1]], grant, stdout=subprocess.PIPE) as process:
        sys.stdout.write(process.communicate()[0].decode())
        sys.stdout.flush()
"""


@pytest.mark.services
def test_without_landlock_and_namespaces_a_run_changes_no_file_but_on_an_accelerator_and_a_conversion_does_as_it_likes(tmp_path):
    """The filter of system calls alone keeps the files; device nodes are opened for reading and writing; the gap is stated."""
    (tmp_path / "sandbox_files.py").write_text(FILES)
    (tmp_path / "there").write_text("x")
    kernel = lesser_kernel.command([lesser_kernel.LANDLOCK, lesser_kernel.UNSHARE])
    printed = printed_by(STARTER, tmp_path, site=tmp_path, kernel=kernel)
    on_cpu, on_accelerator, of_conversion = map(json.loads, printed.splitlines())
    assert on_cpu == {"opened": [["there", os.O_RDONLY]], "missing": [f"{confine.NO_FILES}, though not change them"], "mounts": False}
    assert ["there", os.O_RDWR] in on_accelerator["opened"]
    assert on_accelerator["missing"] == [f"{confine.NO_FILES}, and change them"]
    assert len(of_conversion["opened"]) == 5
    assert of_conversion["missing"] == [f"{confine.NO_FILES}, change, create and remove them, and start programs"]


NAMER = """
import os, sys, threading
from pathlib import Path
from edgemeter.agent.sandbox.confine import confine
from edgemeter.agent.sandbox.policy import SandboxPolicy
read = tuple(filter(None, (*sys.path, sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/proc")))
confine(SandboxPolicy(scratch=sys.argv[1], parent=os.getppid(), read=read, devices=tuple(sys.argv[2:])), 0)
def name():
    try:
        Path(f"/proc/self/task/{os.getpid()}/comm").write_text("named")
        print("named", Path("/proc/self/comm").read_text().strip())
    except OSError:
        print("refused")
thread = threading.Thread(target=name)
thread.start()
thread.join()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("kernel", [pytest.param((), marks=with_landlock), pytest.param(WITHOUT_LANDLOCK, marks=with_namespaces)])
@pytest.mark.parametrize(("device", "printed"), [("/dev/nvidiactl", "named named\n"), ("/dev/dri/renderD128", "refused\n")])
def test_a_process_with_an_nvidia_gpu_names_its_threads(tmp_path, kernel, device, printed):
    """Where it cannot, libcuda (580 on an H200, CUDA 13) ends in error 304. Other accelerators get no writing below /proc."""
    assert printed_by(NAMER, tmp_path, device, site=tmp_path, kernel=kernel) == printed


LISTER = """
import json, os, sys
from pathlib import Path
reached = {}
for name, path in json.loads(sys.argv[1]).items():
    try:
        reached[name] = sorted(os.listdir(path)) if os.path.isdir(path) else Path(path).read_text()
    except OSError as error:
        reached[name] = type(error).__name__
try:
    Path(sys.argv[2]).write_text("x")
except OSError as error:
    reached["write"] = type(error).__name__
print(json.dumps(reached))
"""
GRANTING = """
import json, subprocess, sys
from pathlib import Path
from edgemeter.agent.sandbox.policy import SandboxGrant, started
paths = json.loads(sys.argv[1])
grant = SandboxGrant(read=tuple(map(Path, paths["read"])), write=(Path(paths["write"]),))
with started("sandbox_lister", [json.dumps(paths["opened"]), paths["written"]], grant, stdout=subprocess.PIPE) as process:
    sys.stdout.write(process.communicate()[0].decode())
"""


@pytest.mark.services
@with_namespaces
def test_a_root_of_its_own_has_the_granted_paths_by_the_names_they_have(tmp_path):
    """Links to links, spaces in names, a file of a folder, a folder to write in one to read; nothing beside them, and no absent path."""
    real, links, out = tmp_path / "real data", tmp_path / "links", tmp_path / "real data" / "out"
    (real / "inner").mkdir(parents=True)
    out.mkdir()
    links.mkdir()
    (tmp_path / "secret").write_text("secret")
    (real / "inner" / "model").write_text("model")
    (tmp_path / "lone").write_text("lone")
    (links / "relative").symlink_to("../real data")
    (links / "absolute").symlink_to(links / "relative" / "inner")
    (links / "lone").symlink_to("../lone")
    (links / "loop").symlink_to("loop")
    (real / "out of it").symlink_to(tmp_path / "secret")
    paths = {
        "read": [*(str(links / name) for name in ("absolute", "lone", "loop", "absent")), str(real)],
        "write": str(links / "relative" / "out"),
        "written": str(out / "file"),
        "opened": {
            "by links": str(links / "absolute" / "model"), "lone": str(links / "lone"), "inner": str(real / "inner"),
            "out of it": str(real / "out of it"), "secret": str(tmp_path / "secret"), "links": str(links),
        },
    }  # fmt: skip
    site = tmp_path / "site"
    site.mkdir()
    (site / "sandbox_lister.py").write_text(LISTER)
    assert json.loads(printed_by(GRANTING, json.dumps(paths), site=site, kernel=WITHOUT_LANDLOCK)) == {
        "by links": "model", "lone": "lone", "inner": ["model"], "out of it": "FileNotFoundError", "secret": "FileNotFoundError",
        "links": ["absolute", "lone", "loop", "relative"],
    }  # fmt: skip
    assert (out / "file").read_text() == "x"


CLIENT = """
import json, socket, sys
reached = {}
for name, port in json.loads(sys.argv[1]).items():
    try:
        socket.create_connection(("localhost", port), timeout=5).close()
        reached[name] = True
    except (PermissionError, socket.gaierror):
        reached[name] = False
print(json.dumps(reached))
"""


@pytest.mark.services
@pytest.mark.skipif((landlock.abi() or 0) < 4, reason="this kernel's Landlock knows no ports")
def test_a_client_of_a_server_reaches_its_port_and_no_other(tmp_path, monkeypatch):
    """By a name, which has to be looked up; another service of the same machine stays out of reach, and so does every one of other runs."""
    (tmp_path / "sandbox_client.py").write_text(CLIENT)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"server": server.getsockname()[1], "other": other.getsockname()[1]}
        (tmp_path / "m.server").write_text(f'url = "http://localhost:{ports["server"]}"\n')
        (served,) = expand(SuiteFile(name="s", case=[Settings(model="m.server", prompt_tokens=4, output_tokens=4)]), tmp_path).cases
        reached = []
        for grant in (grant_for(served), policy.SandboxGrant()):
            with policy.started("sandbox_client", [json.dumps(ports)], grant, stdout=subprocess.PIPE) as process:
                reached.append(json.loads(process.communicate()[0]))
    assert reached == [{"server": True, "other": False}, {"server": False, "other": False}]


@pytest.mark.services
def test_a_sandboxed_process_ends_with_the_process_that_started_it(tmp_path, monkeypatch):
    """Also when that is killed, and so cannot end it: no model runs on."""
    (tmp_path / "sandbox_sleeper.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    code = (
        "import time; from edgemeter.agent.sandbox.policy import SandboxGrant, started\n"
        "with started('sandbox_sleeper', [], SandboxGrant()) as process:\n    print(process.pid, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        sleeper = psutil.Process(int(parent.stdout.readline()))
        # Killed while it still sets up its sandbox, it would end for another reason.
        while "Seccomp:\t2" not in Path(f"/proc/{sleeper.pid}/status").read_text():
            assert parent.poll() is None
        parent.kill()
    assert psutil.wait_procs([sleeper], timeout=60)[1] == []
