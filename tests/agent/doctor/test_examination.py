"""Facts about `edgemeter.agent.doctor.examination` and its checks."""

import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.config import Config
from edgemeter.agent.base.console import Console
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.doctor import check_delivery, checks, setups
from edgemeter.agent.doctor import examination as doctor
from edgemeter.agent.doctor.checks import Finding
from edgemeter.agent.machine.machine import recorded
from tests.fixtures import machine_trees, tiny_broker
from tests.fixtures.machine_trees import write
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row


def _machine(root, arch="aarch64"):
    return {finding.name: finding for finding in checks.check_machine(recorded(root, arch))}


def _delivery(home, broker=None):
    return {finding.name: finding for finding in check_delivery.check(home, broker)}


def test_a_healthy_pi_has_only_its_governor_to_think_about(tmp_path):
    """The governor `ondemand` comes with the command that changes it, and all else is fine."""
    findings = _machine(machine_trees.raspberry_pi_5(tmp_path))
    assert [name for name, finding in findings.items() if finding.state == "warn"] == ["governor"]
    assert findings["governor"].remedy.startswith("Run `sudo cpupower")
    assert findings["board"].what == "Raspberry Pi 5 Model B Rev 1.0 (brcm,bcm2712)"
    assert (findings["throttling"].what, findings["supply"].what, findings["temperature"].what) == (
        "none",
        "none",
        "48 C at cpu-thermal, the hottest of 1",
    )
    assert findings["accelerator"].state == "ok"


def test_a_pi_with_a_weak_supply_is_bad_now_and_warned_of_later(tmp_path):
    """The flags 0x50005 mean now, and 0x50000 that it happened since the start.

    A Pi is warned of heat, of swap and of little memory, with their figures.
    """
    flags = "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled"
    now = _machine(write(machine_trees.raspberry_pi_5(tmp_path), {flags: "50005\n"}))
    assert (now["supply"].state, now["throttling"].state) == ("bad", "bad")
    memory = (
        "MemTotal: 900000 kB\nMemAvailable: 200000 kB\nSwapTotal: 500000 kB\nSwapFree: 100000 kB\n"
    )
    hot = {"sys/class/thermal/thermal_zone0/temp": "79900\n", "proc/meminfo": memory}
    later = _machine(write(tmp_path, {flags: "50000\n", **hot}))
    for name, figure in (
        ("temperature", "80 C"),
        ("swap", "410 MB"),
        ("memory", "0.2 GB of 0.9 GB"),
    ):
        assert (later[name].state, later[name].what.startswith(figure)) == ("warn", True), name
    assert (later["supply"].state, later["throttling"].state) == ("warn", "warn")
    assert "it happened since boot" in later["supply"].what
    assert "power supply" in later["supply"].remedy


def test_each_machine_is_warned_of_what_slows_it(tmp_path):
    """Each kind of machine has its own reason to be slow.

    The reasons are clocks that a Jetson's own command fixes, 32 bits without wheels, a link of half
    the speed, and neighbours of a virtual machine.
    """
    guest = {
        ".dockerenv": "",
        "proc/cpuinfo": "processor : 0\nflags : hypervisor\nmodel name : AMD EPYC\n",
    }
    pi = machine_trees.raspberry_pi_5
    for root, make, changes, arch, name, text in (
        (
            tmp_path / "jetson",
            machine_trees.jetson_orin_nano,
            {},
            "aarch64",
            "governor",
            "`sudo jetson_clocks`",
        ),
        (tmp_path / "32", pi, {}, "armv7l", "system", "install the 64-bit system"),
        (
            tmp_path / "usb",
            pi,
            {"sys/bus/usb/devices/2-1/speed": "480\n"},
            "aarch64",
            "accelerator",
            "USB 3",
        ),
        (tmp_path / "guest", Path, guest, "x86_64", "virtualisation", "a guest (docker in"),
    ):
        with table_row(name):
            finding = _machine(write(make(root), changes), arch)[name]
            assert finding.state == "warn"
            assert text in f"{finding.what} {finding.remedy}"
    assert _machine(tmp_path / "jetson")["power mode"].state == "absent"


@pytest.mark.services
def test_a_broken_library_is_distinguished_from_a_good_one():
    """The library is imported in a process of its own, which may die."""
    for module, problem in [
        ("json", None),
        (
            "edgemeter_no_such_module",
            "ModuleNotFoundError: No module named 'edgemeter_no_such_module'",
        ),
        (
            "os, signal; os.kill(os.getpid(), signal.SIGILL)",
            "it uses instructions that this processor lacks (SIGILL)",
        ),
        ("os; os.abort()", "it was killed by SIGABRT"),
        ("sys; sys.exit(3)", "it ended with status 3"),
    ]:
        assert checks._end(checks._begin([f"import {module}"]))[1] == problem


def test_a_device_without_an_outbox_has_nothing_waiting(tmp_path):
    """Free room is looked for where the outbox's folder will be, and nothing is created."""
    home = tmp_path / "not" / "yet"
    findings = _delivery(home)
    assert (findings["disk"].state, findings["outbox"].state, findings["broker"].state) == (
        "ok",
        "ok",
        "absent",
    )
    assert not home.exists()


def test_waiting_records_are_counted_and_counting_changes_nothing(tmp_path):
    """The file of the outbox is the same before and after."""
    with Outbox(tmp_path / "outbox.sqlite") as outbox:
        outbox.put(make_record())
        outbox.put(make_record())
    before = {path.name: path.read_bytes() for path in tmp_path.glob("outbox.sqlite")}
    finding = _delivery(tmp_path)["outbox"]
    assert (finding.state, finding.what) == ("warn", "2 records waiting to be delivered")
    assert "edgemeter agent publish" in finding.remedy
    assert {path.name: path.read_bytes() for path in tmp_path.glob("outbox.sqlite")} == before


@pytest.mark.services
def test_a_sensor_that_is_configured_wrongly_or_cannot_be_read_has_a_remedy(tmp_path):
    """A sensor that is merely absent has no remedy."""
    settings = Config(sensors={"hwmon": {"shunt_ohm": "one"}, "rapl": {"path": str(tmp_path)}})
    findings = doctor.examine(broker=None, home=tmp_path, settings=settings)
    assert all(finding.remedy for finding in findings if finding.state in ("warn", "bad"))
    assert [finding.state for finding in findings if finding.name == "hwmon"] == ["bad"]


@pytest.mark.services
def test_a_broker_is_judged_by_what_it_answers(tmp_path):
    """A broker of MQTT 5 that accepts the device is fine.

    One of 3.1.1 is a warning, since it cannot report that it refuses a result. One that refuses the
    device, or that is no broker, is bad.
    """
    for answers, state, text in (
        (tiny_broker.ACCEPTED, "ok", "accepts this device, MQTT 5"),
        ({4: tiny_broker.ACCEPTED[4], 5: tiny_broker.UNKNOWN_VERSION}, "warn", "only MQTT 3.1.1"),
        (tiny_broker.NOT_AUTHORISED, "bad", "refuses"),
        (dict.fromkeys((4, 5), tiny_broker.NO_MQTT), "bad", "not an MQTT broker"),
    ):
        with table_row(text), tiny_broker.answering(answers) as address:
            finding = _delivery(tmp_path, address)["broker"]
            assert (finding.state, text in finding.what, bool(finding.remedy)) == (
                state,
                True,
                state != "ok",
            )
    for address, text in (
        ("127.0.0.1:1", "no MQTT broker answers at 127.0.0.1:1"),
        ("http://x", "not a broker address"),
    ):
        finding = _delivery(tmp_path, address)["broker"]
        assert (finding.state, text in finding.what) == ("bad", True)


def test_the_table_shows_every_finding_and_remedy():
    """No text is cut at any width, and brackets in a text are no markup."""
    for width in [40, 80, 200]:
        with table_row(width):
            findings = [
                Finding(area="machine", name="board", state="ok", what="a [bold]board[/bold]"),
                Finding(
                    area="delivery",
                    name="broker",
                    state="bad",
                    what="no broker answers",
                    remedy="`start one`",
                ),
            ]
            printed = io.StringIO()
            Console(file=printed, width=width).print(doctor.render(findings))
            letters = "".join(printed.getvalue().split())
            for word in ("[bold]board[/bold]", "BAD", "`startone`", "problem"):
                assert word in letters
            assert "…" not in letters


def _printed(findings, **how):
    printed = io.StringIO()
    Console(file=printed, width=300).print(doctor.render(findings, **how))
    return [line.strip() for line in printed.getvalue().splitlines()]


def test_the_brief_report_names_what_is_absent_in_one_line(tmp_path):
    """Each thing that is here or wrong has a line, and the runtimes share one.

    That the machine is shared is told at the end.
    """
    busy = {
        ".dockerenv": "",
        "proc/cpuinfo": "processor : 0\nprocessor : 1\n",
        "proc/loadavg": "0.90 0.5 0.5 1/2 3\n",
    }
    findings = [
        *checks.check_machine(recorded(write(tmp_path, busy), "x86_64")),
        Finding("software", "python", "ok", "CPython 3.11"),
        Finding("software", "onnx", "ok", "onnxruntime 1.31"),
        Finding("software", "litert", "ok", "ai-edge-litert 2.3"),
        Finding("software", "ncnn", "absent", "ncnn is not installed", "pip install"),
        *(Finding("power", name, "absent", "none is connected") for name in ("um25c", "shelly")),
    ]
    lines = _printed(findings)
    assert "runtimes        ok    onnx (onnxruntime 1.31), litert (ai-edge-litert 2.3)" in lines
    assert [line.split()[0] for line in lines[:3]] == ["virtualisation", "load", "processor"]
    (absent,) = (line for line in lines if "not here" in line)
    assert absent.endswith("ncnn, 2 power sensors: --all shows why")
    assert (
        lines[-1] == "ready to measure, 2 warnings; runs on this shared machine are often disturbed"
    )
    assert len(lines) <= 20
    assert "power     shelly          -     none is connected" in _printed(findings, is_whole=True)
    assert _printed([Finding("machine", "processor", "ok", "2 cores")])[-1] == "ready to measure"


@pytest.mark.services
def test_the_doctor_imports_no_runtime_and_no_numpy(tmp_path):
    """The doctor therefore works where they are absent or broken, and starts fast."""
    heavy = ("numpy", "psutil", "PIL", "onnxruntime", "ai_edge_litert", "torch")
    program = (
        # Where the library of a Joulescope is installed, looking for one takes it, and it takes
        # numpy.
        "import sys, pathlib; sys.modules['pyjoulescope_driver'] = None; from "
        "edgemeter.agent.doctor import examination;"
        "from edgemeter.agent.machine import conditions, fingerprint;"
        "from edgemeter.agent.energy import sampler;"
        f"examination.examine(broker=None, home=pathlib.Path({str(tmp_path)!r}), "
        "settings=examination.Config());"
        "fingerprint.read(); conditions.inspect('before');"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    assert completed.stdout.strip() == "[]"


def test_the_extra_for_the_edge_tpu_pins_the_interpreter_of_the_pair():
    """The extra makes pip install the matching interpreter without further help."""
    project = msgspec.toml.decode(
        (Path(__file__).resolve().parents[3] / "pyproject.toml").read_bytes()
    )["project"]
    assert set(setups.interpreters().values()) == {project["optional-dependencies"]["coral"][0]}
