"""Facts about `edgemeter.agent.energy.watch`."""

import json
import time

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.energy import per_inference, watch
from edgemeter.agent.energy.watch import Watch


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return a configuration whose replay sensor shows 2 W for one second, then 6 W for one, then 2 W again."""
    # A second of power for the rules' ten, so that the test is short.
    monkeypatch.setattr(per_inference, "SHORTEST_S", 1.0)
    # A busy machine may keep the sampler from reading for a while.
    monkeypatch.setattr(per_inference, "LARGEST_GAP_RATIO", 0.5)
    path = tmp_path / "trace.json"
    points = {"t_s": [0, 0.999, 1.001, 1.999, 2.001, 60], "power_w": [2, 2, 6, 6, 2, 2]}
    path.write_text(
        json.dumps({"id": "bench", "scope": "board-input", "period_ms": 10, "resolution_w": 0.001, "gain_u_ratio": 0.01, **points})
    )
    return config.Config(sensors={"replay": {"path": str(path)}})


def test_the_energy_of_a_block_is_what_the_sensor_saw_in_it(settings):
    """About 6 J gross and 4 J net, halved for two pieces of work; the recording itself determines how much, whenever the block ran."""
    for units in (1, 2):
        with Watch("replay", idle_s=1.0, units=units, settings=settings) as watching:
            time.sleep(1.0)
        began_ns = watching._sampler.traces()["replay"].readings[0].taken_ns
        start_s = (watching._start_ns - began_ns) / 1e9
        loud_s = max(0.0, min(start_s + watching.seen.seconds, 2.0) - max(start_s, 1.0))
        truth_mj = 1000 * (2 * watching.seen.seconds + 4 * loud_s)
        energy = watching.seen.energies.energy
        # Of a step that fell between two readings nobody knows when it was.
        assert energy.gross_mj * units == pytest.approx(truth_mj, abs=0.03 * truth_mj + 4 * 2 * energy.longest_gap_ms)
        assert abs(energy.gross_mj * units - truth_mj) < 2 * energy.gross_u_mj * units
        assert energy.net_mj < energy.gross_mj
        assert (energy.scope, energy.inferences) == ("board-input", units)


def test_a_block_that_is_too_short_gives_no_energy(settings):
    """It states how long it would have to be, and how to achieve that."""
    with Watch("replay", idle_s=0.2, settings=settings) as watching:
        time.sleep(0.2)
    assert watching.seen.energies.energy is None
    assert "watch at least 1 s of it (repeat the work)" in watching.seen.energies.reason


def test_a_block_that_raises_is_not_hidden(settings):
    """Its error is the caller's; nothing was seen, and the sampler has ended."""

    def fail():
        message = "out of data"
        raise ValueError(message)

    watching = Watch("replay", idle_s=0.1, settings=settings)
    with pytest.raises(ValueError, match="out of data"), watching:
        fail()
    assert not hasattr(watching, "seen")


def test_without_a_sensor_there_is_nothing_to_watch(settings):
    """Said before the block is run."""
    with pytest.raises(UnavailableError, match="none"), Watch("none", settings=settings):
        pytest.fail("the block was run")


def test_the_usual_idle_is_as_long_as_the_rules_want():
    """Ten seconds on both sides."""
    assert watch.IDLE_S == 10.0
