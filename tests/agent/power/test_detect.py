"""Facts about `edgemeter.agent.power.detect`."""

import json
from typing import get_args

from edgemeter.agent import power
from edgemeter.agent.power.detect import NO_SENSOR, WIDEST_FIRST, Found, choose, detect
from edgemeter.agent.power.world import World
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
    assert choose([Found("rapl", None, "no counters", is_absent=True)]) == (None, NO_SENSOR)
    assert choose([]) == (None, "no power sensor on this machine")


def test_a_sensor_that_is_here_and_not_readable_is_told():
    """Rails that only root may read are no reason to say that there is none."""
    found = [Found("rapl", None, "no counters", is_absent=True), Found("ina3221", None, "may not read '/sys/x'")]
    assert choose(found) == (None, "ina3221 is here and cannot be read: may not read '/sys/x'")


def test_a_blocked_sensor_yields_to_one_that_may_give_an_energy():
    """The widest scope is of no use where its shunt is not confirmed."""
    blocked = Found("ina2xx", make_description(scope="board-input", blocked="confirm its shunt"), None)
    rails = Found("rails", make_description(scope="soc-rails"), None)
    assert choose([blocked, rails])[0] == "rails"
    assert choose([blocked])[0] == "ina2xx"


def test_a_present_sensor_is_described_and_an_absent_one_has_its_reason(tmp_path):
    """The real driver on two trees."""
    (here,) = detect(names=["rapl"], world=World(intel_pc(tmp_path)))
    assert (here.name, here.description.id, here.reason) == ("rapl", "rapl:package-0+dram", None)
    (absent,) = detect(names=["rapl"], world=World(tmp_path / "nothing"))
    assert absent.description is None
    assert "no RAPL counter" in absent.reason
    assert absent.is_absent


def test_a_replay_is_found_only_when_configured_and_never_chosen(tmp_path):
    """It plays a recording; nobody may take it for a meter unasked."""
    assert "replay" not in [found.name for found in detect()]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"scope": "wall-ac", "t_s": [0, 1], "power_w": [1, 1]}))
    found = {one.name: one for one in detect({"replay": {"path": str(path)}}, ["replay", "rapl"], World(tmp_path))}
    assert found["replay"].description is not None
    assert choose(found.values())[0] is None


def test_a_wrong_setting_is_a_reason_and_no_exception():
    """An unknown key, and a name that nobody has."""
    (wrong,) = detect({"rapl": {"sysfss": "/sys"}}, names=["rapl"])
    assert not wrong.is_absent
    assert "sysfss" in wrong.reason
    (unknown,) = detect(names=["wattmeter"])
    assert "'wattmeter'" in unknown.reason


def test_all_our_sensors_are_looked_for():
    """Every name of the table but the replay."""
    assert {found.name for found in detect()} >= set(power.SENSORS) - {"replay"}
