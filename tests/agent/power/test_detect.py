"""Facts about `edgemeter.agent.power.detect`."""

import json
from typing import get_args

from edgemeter.agent import power
from edgemeter.agent.power.detect import NO_SENSOR, WIDEST_FIRST, Found, choose, detect
from edgemeter.agent.records import Scope
from tests.fixtures.machine_trees import intel_pc
from tests.fixtures.power_traces import make_description


def test_every_scope_has_its_place():
    """None twice, none missing."""
    assert sorted(WIDEST_FIRST) == sorted(get_args(Scope))


def test_the_widest_scope_is_chosen_and_told():
    """The wall plug before the module's rails; what it was preferred to is named."""
    found = [
        Found("rails", make_description(scope="soc-rails"), None),
        Found("plug", make_description(scope="wall-ac"), None),
        Found("absent", None, "not here"),
    ]
    assert choose(found) == ("plug", "plug, which sees wall-ac, more than rails")


def test_without_a_sensor_nothing_is_chosen():
    """The reason is what a record carries."""
    assert choose([Found("rapl", None, "no counters")]) == (None, NO_SENSOR)
    assert choose([]) == (None, "no power sensor on this machine")


def test_a_present_sensor_is_described_and_an_absent_one_has_its_reason(tmp_path):
    """The real driver on two trees."""
    (here,) = detect({"rapl": {"sysfs": str(intel_pc(tmp_path) / "sys")}})
    assert (here.name, here.description.id, here.reason) == ("rapl", "rapl:package-0+dram", None)
    (absent,) = detect({"rapl": {"sysfs": str(tmp_path / "nothing")}})
    assert absent.description is None
    assert "no RAPL counter" in absent.reason


def test_a_replay_is_found_only_when_configured_and_never_chosen(tmp_path):
    """It plays a recording; nobody may take it for a meter unasked."""
    assert "replay" not in [found.name for found in detect()]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"scope": "wall-ac", "t_s": [0, 1], "power_w": [1, 1]}))
    found = {one.name: one for one in detect({"replay": {"path": str(path)}, "rapl": {"sysfs": str(tmp_path)}})}
    assert found["replay"].description is not None
    assert choose(found.values())[0] is None


def test_a_wrong_setting_is_a_reason_and_no_exception():
    """An unknown key, and a name that nobody has."""
    (wrong,) = detect({"rapl": {"sysfss": "/sys"}}, names=["rapl"])
    assert "sysfss" in wrong.reason
    (unknown,) = detect(names=["wattmeter"])
    assert "'wattmeter'" in unknown.reason


def test_all_our_sensors_are_looked_for():
    """Every name of the table but the replay."""
    assert {found.name for found in detect()} >= set(power.SENSORS) - {"replay"}
