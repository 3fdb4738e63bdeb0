"""Facts about `edgemeter.agent.session.observer` and where its result is kept."""

import json
import math
import random

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError
from edgemeter.agent.cli.doctor import doctor
from edgemeter.agent.contract import case_settings, suite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import ObserverEffect
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import observation, observer, session
from tests.fixtures.record_factory import make_environment
from tests.fixtures.replay_case import write_replay

WHO = session.DeviceIdentity("bench", "lab")
EFFECT = ObserverEffect(effect_ratio=0.02, low_ratio=0.015, high_ratio=0.03, pairs=10, measured_at_ns=5, case="m replay", p50_ms=2.0)


@pytest.fixture
def model(tmp_path):
    """Return a replay model of 2 ms a query."""
    return write_replay(tmp_path)


def suite_of(model):
    """Return the suite of one rapid run of the model."""
    written = suite.SuiteFile(name="s", case=[case_settings.Settings(model=str(model), mode="rapid", repeats=1)])
    return suite.expand(written, model.parent)


def test_an_effect_of_two_per_cent_is_found_with_its_interval():
    """Twelve pairs with 0.5% of noise each: 2% lies within the bounds, which lie within 1% of it; none is near 0."""
    draw = random.Random(3)  # noqa: S311 - a repeatable draw
    pairs = [(5.1 * math.exp(draw.gauss(0, 0.005)), 5.0 * math.exp(draw.gauss(0, 0.005))) for _ in range(12)]
    effect = observer.effect_of(pairs, "m", ("rapl",))
    assert effect.low_ratio < 0.02 < effect.high_ratio
    assert 0.01 < effect.low_ratio < effect.effect_ratio < effect.high_ratio < 0.03
    assert (effect.pairs, effect.sensors, effect.p50_ms) == (12, ("rapl",), pytest.approx(5.0, rel=0.01))


def test_one_pair_gives_no_effect():
    """An interval needs more than one."""
    with pytest.raises(MeasurementError, match="1 pairs of runs do not give an interval"):
        observer.effect_of([(5.0, 5.0)], "m", ())


@pytest.mark.slow
def test_pairs_are_measured_with_and_without_sampling(model, tmp_path):
    """Every run is a process of its own; the order turns round; the sensor is read in half of the runs only."""
    recording = tmp_path / "power.json"
    recording.write_text(json.dumps({"t_s": [0, 0.01, 60], "power_w": [2, 2, 2], "scope": "board-input", "period_ms": 20.0}))
    sensor = ReplaySensor(str(recording))
    reads: list[int] = []
    real_read = sensor.read
    sensor.read = lambda: reads.append(1) or real_read()
    before: list[int] = []

    def on_event(event):
        if isinstance(event, session.RunBegins):
            before.append(len(reads))

    (case,) = suite_of(model).cases
    effect = observer.calibrate(case, WHO, {"replay": sensor}, 3, on_event)
    assert [len(effect.pairs_ms), effect.effect.pairs, len(before)] == [3, 3, 6]
    assert effect.effect.sensors == ("replay",)
    # A replayed query takes 2 ms or, on a busy machine, more.
    assert all(p50_ms >= 2.0 for pair in effect.pairs_ms for p50_ms in pair)
    was_read = [later > earlier for earlier, later in zip(before, [*before[1:], len(reads)], strict=True)]
    assert was_read == [True, False, False, True, False, True]
    assert all(doubt.endswith(" of 6 runs") for doubt in effect.doubts)


def test_a_run_that_fails_ends_the_calibration(tmp_path):
    """A broken model is reported as such."""
    broken = tmp_path / "m.replay.json"
    broken.write_text("{}")
    (case,) = suite_of(broken).cases
    with pytest.raises(EdgemeterError, match="is not a replay model"):
        observer.calibrate(case, WHO, {}, 5, lambda _: None)


def test_the_effect_is_kept_for_its_board_and_sensors(tmp_path):
    """Found for the same board and sensors only; a second calibration takes the place of the first, others stay."""
    pi, other = make_environment(), make_environment(board="Raspberry Pi 4 Model B Rev 1.1")
    assert observation.find_observer_effect(pi, (), tmp_path) is None
    observation.keep_observer_effect(EFFECT, pi, tmp_path / "new")
    newer = ObserverEffect(**{**{name: getattr(EFFECT, name) for name in EFFECT.__struct_fields__}, "effect_ratio": 0.001})
    observation.keep_observer_effect(EFFECT, other, tmp_path / "new")
    observation.keep_observer_effect(newer, pi, tmp_path / "new")
    assert observation.find_observer_effect(pi, (), tmp_path / "new") == newer
    assert observation.find_observer_effect(other, (), tmp_path / "new") == EFFECT
    assert observation.find_observer_effect(pi, ("rapl",), tmp_path / "new") is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"\xff\xfe"])
def test_a_damaged_file_stops_no_measurement_and_is_not_written_over(tmp_path, content, caplog):
    """It counts as none and is logged; to store something in it is an error with a remedy."""
    (tmp_path / observation.OBSERVER_FILE).write_bytes(content)
    assert observation.find_observer_effect(make_environment(), (), tmp_path) is None
    assert "is damaged" in caplog.text
    with pytest.raises(ConfigError, match="delete it and calibrate again"):
        observation.keep_observer_effect(EFFECT, make_environment(), tmp_path)


def test_later_records_carry_the_effect(model, tmp_path, monkeypatch):
    """A record made where 2% was calibrated states it, and is suspect for it."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    observation.keep_observer_effect(EFFECT, fingerprint.read())
    (record,) = session.measure(suite_of(model), WHO, {}, "none", lambda _: None)
    assert isinstance(record, RunRecord)
    assert record.observer == EFFECT
    assert any(reason.startswith("observer-effect: power and condition sampling adds 2.0%") for reason in record.verdict.reasons)


@pytest.mark.slow
@pytest.mark.alone
def test_the_command_calibrates_stores_and_reports(model, tmp_path, monkeypatch):
    """Five pairs on a replay that lasts what it lasts: the difference is small, and is in the file."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    arguments = ["overhead", "--model", str(model), "--mode", "rapid", "--pairs", "5", "--power", "none", "--json"]
    result = CliRunner().invoke(doctor, arguments, catch_exceptions=False)
    document = json.loads(result.stdout)
    assert abs(document["effect"]["effect_ratio"]) < 0.05
    assert len(document["pairs_ms"]) == 5
    stored = json.loads((tmp_path / "home" / observation.OBSERVER_FILE).read_text())
    assert list(stored.values()) == [document["effect"]]


def test_calibrate_needs_one_case():
    """Neither a suite nor a model, or both, is wrong usage."""
    assert CliRunner().invoke(doctor, ["overhead"]).exit_code == 2
