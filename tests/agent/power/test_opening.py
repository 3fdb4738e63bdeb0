"""Facts about `edgemeter.agent.power.opening`."""

import json

import pytest

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.power import calibration_file, opening
from edgemeter.agent.power.calibration_file import Calibration
from edgemeter.agent.power.opening import opened


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return the settings of a replayed sensor of 2 W, on a board `b`, in a home of its own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    monkeypatch.setattr(opening, "board_key", lambda: "b")
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"id": "bench", "scope": "module", "t_s": [0, 1], "power_w": [2, 2]}))
    return {"replay": {"path": str(path)}}


def calibrate(**changes):
    """Keep a calibration of it: 1 W + 1.5 x shown."""
    usual = {
        "kind": "gain", "board": "b", "sensor": "replay:bench", "scope": "module", "gain": 1.5, "offset_w": 1.0, "gain_u_ratio": 0.01,
        "offset_u_w": 0.1, "residual_w": 0.1, "lowest_w": 1.0, "highest_w": 9.0, "steps": 6, "reference": "r", "made_at": "2026-11-20",
    }  # fmt: skip
    calibration_file.keep(Calibration(**(usual | changes)))


def test_none_is_none_and_says_so(settings):
    """Somebody asked for it."""
    with opened("none", ("replay",), settings) as (sensors, why):
        assert (sensors, why) == ({}, "power was not to be measured (--power none)")


def test_what_is_named_goes_before_what_is_usual(settings):
    """And what is usual before what is found."""
    for said, usual in (("replay", ()), (" replay ,replay", ()), (None, ("replay",))):
        with opened(said, usual, settings) as (sensors, _):
            assert list(sensors) == ["replay"]


def test_a_named_sensor_that_is_not_here_ends_the_command(settings):
    """Before anything is measured; those that were opened before it are closed."""
    for said in ("replay,shelly", "shelly"):
        with pytest.raises(UnavailableError, match="set address"), opened(said, (), settings):
            pytest.fail("opened")
    with pytest.raises(ConfigError, match="wattmeter"), opened("wattmeter", (), settings):
        pytest.fail("opened")


def test_a_calibration_of_this_board_is_applied_unasked(settings):
    """Another board's is not."""
    with opened("replay", (), settings) as (sensors, _):
        assert sensors["replay"].read().power_w == 2.0
    calibrate(board="another")
    with opened("replay", (), settings) as (sensors, _):
        assert sensors["replay"].read().power_w == 2.0
    calibrate()
    with opened("replay", (), settings) as (sensors, _):
        assert sensors["replay"].read().power_w == 4.0


def test_a_promotion_is_applied_by_its_name_only(settings):
    """Its scope is a model's, so nobody gets it unasked."""
    calibrate(kind="promotion", name="desk", scope="wall-ac")
    with opened("replay", (), settings) as (sensors, _):
        assert sensors["replay"].describe().scope == "module"
    with opened("replay+desk", (), settings) as (sensors, _):
        found = sensors["replay+desk"].describe()
    assert (found.scope, found.is_modelled) == ("wall-ac", True)
    with pytest.raises(ConfigError, match="'lab'"), opened("replay+lab", (), settings):
        pytest.fail("opened")
