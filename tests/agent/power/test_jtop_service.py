import json
import re
import sys
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.jtop_service import Jtop
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import table_row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]


def rail(power_mw, *, volt=5000, online=True, **other):
    """Return one rail as jtop describes it, with a mean that is never right."""
    return {
        "volt": volt,
        "curr": power_mw,
        "warn": 32760,
        "crit": 32760,
        "power": power_mw,
        "avg": 1,
        "online": online,
        **other,
    }


ORIN_NANO = {
    "rail": {"VDD_CPU_GPU_CV": rail(1123), "VDD_SOC": rail(2046)},
    "tot": rail(6300, name="VDD_IN"),
}
MODULE = """
import json, pathlib

HERE = pathlib.Path(__file__).parent


class JtopException(Exception):
    pass


class jtop:
    closed = 0

    def __init__(self, interval=1.0):
        self.interval_user, self.interval, self.readings = interval, 0.5, None

    def start(self):
        said = (HERE / "refuses").read_text() if (HERE / "refuses").exists() else None
        if said == "socket":
            raise ConnectionResetError("reset")
        if said:
            raise JtopException(said)
        self.readings = iter(json.loads((HERE / "powers.json").read_text()))

    def ok(self, spin=False):
        assert not spin
        self.power = next(self.readings, None)
        if self.power == "lost":
            raise JtopException("Lost connection with jtop server")
        return self.power is not None

    def close(self):
        jtop.closed += 1
"""


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Return a root with jtop's socket, and a module `jtop` that plays the given powers."""
    folder = tmp_path / "library"
    write(folder, {"jtop.py": MODULE})
    write(tmp_path, {"run/jtop.sock": ""})
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "jtop", raising=False)

    def start(*powers, refuses=None):
        (folder / "powers.json").write_text(json.dumps(powers))
        if refuses:
            (folder / "refuses").write_text(refuses)
        return tmp_path

    yield start
    sys.modules.pop("jtop", None)


def test_the_named_total_is_taken_and_never_a_mean(service):
    """On an Orin Nano `tot` is the rail VDD_IN."""
    sensor = Jtop(root=service(ORIN_NANO, ORIN_NANO))
    description, reading = sensor.describe(), sensor.read()
    assert reading.power_w == 6.3
    assert {rail.name: rail.power_w for rail in reading.rails} == {
        "VDD_CPU_GPU_CV": 1.123,
        "VDD_SOC": 2.046,
        "VDD_IN": 6.3,
    }
    assert (description.id, description.scope) == ("jtop:VDD_IN", "module")
    assert description.resolution_w == pytest.approx(0.04)


def test_an_offline_rail_is_no_zero(service):
    """An offline rail of the total fails the reading, and any other one gives a warning."""
    with pytest.raises(UnavailableError, match="VDD_IN"):
        Jtop(root=service({**ORIN_NANO, "tot": rail(0, name="VDD_IN", online=False)})).describe()
    sys.modules.pop("jtop")
    without = {**ORIN_NANO, "rail": {"VDD_SOC": rail(0, online=False)}}
    sensor = Jtop(root=service(without, without))
    assert "VDD_SOC" in sensor.describe().warnings[0]
    reading = sensor.read()
    assert (
        reading.power_w,
        [part.power_w for part in reading.rails if part.name == "VDD_SOC"],
    ) == (6.3, [None])


def test_a_service_of_another_form_gives_no_number(service):
    """Another version of the service may reply in another form."""
    for power in [
        {"rail": {}, "tot": {}},
        {"rail": {"VDD_IN": {"power": "6300"}}, "tot": None},
        {"rail": [1, 2], "tot": 3},
    ]:
        with table_row(power), pytest.raises(UnavailableError, match="unknown format"):
            Jtop(root=service(power)).describe()


def test_a_running_service_is_read_in_its_own_rhythm(service):
    """Each reading waits for the next one, so the period is the service's own."""
    later = {**ORIN_NANO, "tot": rail(8100, name="VDD_IN")}
    sensor = Jtop("2.0", service(ORIN_NANO, ORIN_NANO, later))
    assert sensor.describe().period_ms == 500.0
    assert [sensor.read().power_w, sensor.read().power_w] == [6.3, 8.1]
    assert sensor._client.interval_user == 2.0
    with pytest.raises(UnavailableError, match="stopped answering"):
        sensor.read()
    sensor.close()
    assert sys.modules["jtop"].jtop.closed == 1


def test_a_service_that_refuses_or_goes_is_reported_with_the_reason(service):
    """The error is one line with the service's own words and what to check."""
    words = (
        "Mismatch version jtop service: [4.2.7] and client: [7.2.2]. Please run:\n\nsudo jtop "
        "--install-service"
    )
    for refuses, reason in ((words, "4.2.7"), ("socket", "reset")):
        with pytest.raises(UnavailableError, match=reason) as refusal:
            Jtop(root=service(refuses=refuses)).describe()
        assert "\n" not in str(refusal.value)
        assert not isinstance(refusal.value, AbsentError)


def test_a_missing_library_names_how_to_get_it(tmp_path, monkeypatch):
    """This holds where the service runs; without a service the sensor is absent, without fault."""
    monkeypatch.setitem(sys.modules, "jtop", None)
    with pytest.raises(AbsentError, match=r"edgemeter\[jtop\]"):
        Jtop(root=tmp_path).describe()
    write(tmp_path, {"run/jtop.sock": ""})
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[jtop\]'") as refusal:
        Jtop(root=tmp_path).describe()
    assert not isinstance(refusal.value, AbsentError)


def test_an_interval_that_is_none_is_refused():
    """The error names the value and the section that holds it."""
    for interval_s in ["0", "often", "nan"]:
        with (
            table_row(interval_s),
            pytest.raises(ConfigError, match=r"\[sensors.jtop\] interval_s"),
        ):
            Jtop(interval_s)


def test_nothing_else_imports_or_needs_jetson_stats():
    """The library is under the AGPL, so one module loads it by name and one extra installs it."""
    loads = re.compile(
        r"""^\s*(?:import|from)\s+jtop\b|import_module\(\s*["']jtop\b""", re.MULTILINE
    )
    homes = {
        str(path.relative_to(ROOT))
        for package in ("agent", "collector", "models", "provisioning")
        for path in (ROOT / package).rglob("*.py")
        if loads.search(path.read_text())
    }
    assert homes == {"agent/power/jtop_service.py"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name
        for name, needs in project["optional-dependencies"].items()
        if re.search(r"jetson|\bjtop\b", " ".join(needs))
    }
    assert extras <= {"jtop"}
    assert "jetson" not in " ".join(project["dependencies"])


@pytest.mark.captures
def test_the_captured_reply_gives_the_input_s_present_power(captures, service):
    """VDD_IN draws 5133 mW, not its mean of 4800 mW; the resolution is 8 mA at 4.936 V."""
    power = json.loads((captures / "jetson/jtop_power_orin_nano4gb_jp62.json").read_text())
    sensor = Jtop(root=service(power, power))
    description = sensor.describe()
    assert (description.scope, sensor.read().power_w) == ("module", 5.133)
    assert description.resolution_w == pytest.approx(0.008 * 4.936)
