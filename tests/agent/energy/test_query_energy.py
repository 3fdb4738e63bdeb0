"""Facts about the energy within queries of a language model, over made-up loads with real edges and sensors that are late."""

import numpy as np
import pytest

from edgemeter.agent.energy.per_inference import assess
from tests.fixtures.generation_worlds import GenerationWorld, draw_generation, judge
from tests.fixtures.power_traces import budget_of, make_counter
from tests.fixtures.rows import table_row

LONG = {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 72.0, "idle_s": 20.0}
LATE = [{"lag_s": 0.5}, {"window_s": 1.0}, {"transport_s": 0.3}]


def test_what_a_late_sensor_shows_after_a_border_belongs_before_it():
    """Uncorrected, half a second of lag takes 5% from the prefill and gives 4% to decoding; each form of delay is put right."""
    for late in LATE:
        with table_row(late):
            trial = draw_generation(GenerationWorld(**(LONG | late)), np.random.default_rng(3), gain_z=0.0)
            figures, _ = judge(trial)
            for part in ("prefill", "decode"):
                gross_j, gross_u_j, _, _ = figures[part]
                assert abs(gross_j - trial.gross_j[part]) <= gross_u_j <= 0.05 * gross_j
            both_j = figures["prefill"][0] + figures["decode"][0]
            assert both_j == pytest.approx(figures["request"][0], rel=0.012)


def test_a_part_of_few_delays_is_refused_with_the_delay():
    """1.2 s of prefill are no three delays of .5 s."""
    _, reasons = judge(draw_generation(GenerationWorld(lag_s=0.5, timed_s=40.0), np.random.default_rng(3)))
    assert "0.5" in reasons["prefill"]
    assert "s late" in reasons["prefill"]
    assert "longer prompts" in reasons["prefill"]


def test_what_a_server_does_between_requests_is_not_theirs():
    """Untimed prompts of .6 s at 8 W are a fifth of the run: the requests have their own energy, gross and net, and idle power too."""
    for late in ({}, {"lag_s": 0.1}):
        with table_row(late):
            trial = draw_generation(GenerationWorld(pause_s=0.6, timed_s=40.0, idle_s=20.0, **late), np.random.default_rng(4), gain_z=0.0)
            energy, why = assess(trial.trace, trial.run)
            assert why is None
            assert abs(energy.gross_mj / 1000 - trial.gross_j["request"]) <= energy.gross_u_mj / 1000 <= 0.03 * trial.gross_j["request"]
            assert abs(energy.net_mj / 1000 - trial.net_j["request"]) <= energy.net_u_mj / 1000
            assert energy.gross_mj == pytest.approx(energy.mean_power_w * energy.window_ms / trial.run.inferences)


def test_requests_too_short_for_the_sensor_are_refused_with_the_remedy():
    """Half a second of each, and .3 s of what nobody timed, are one to a sensor of 10 readings a second."""
    world = GenerationWorld(prefill_s=0.4, decode_s=0.1, pause_s=0.3, timed_s=30.0)
    trial = draw_generation(world, np.random.default_rng(5))
    energy, why = assess(trial.trace, trial.run)
    assert energy is None
    assert "% of the timed part lies between the queries" in why
    assert "more output tokens or longer prompts" in why


def test_a_short_pause_is_bounded_by_idle_and_highest_power():
    """20 ms between requests of 12 s are a term of the budget."""
    trial = draw_generation(GenerationWorld(pause_s=0.02, **LONG), np.random.default_rng(6), gain_z=0.0)
    energy, _ = assess(trial.trace, trial.run)
    assert 0 < budget_of(trial.trace, trial.run)["between"].u_mj < 100
    assert abs(energy.gross_mj / 1000 - trial.gross_j["request"]) <= energy.gross_u_mj / 1000


def test_an_energy_counter_gives_the_requests_alone():
    """At 5 W all through, a request of 4.2 s takes 21 J, whatever the pauses."""
    trial = draw_generation(GenerationWorld(pause_s=0.6, timed_s=60.0), np.random.default_rng(7))
    energy, why = assess(make_counter(5.0, 130.0), trial.run)
    assert why is None
    request_ms = (trial.windows.last_ns - trial.windows.starts_ns).mean() / 1e6
    assert energy.gross_mj == pytest.approx(5.0 * request_ms, rel=0.001)
