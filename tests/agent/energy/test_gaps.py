"""Facts about what ran between the queries: it is bounded, and no reason to refuse an energy."""

import numpy as np
import pytest

from edgemeter.agent.energy.gaps import between_term
from edgemeter.agent.energy.per_inference import assess
from tests.fixtures.generation_worlds import GenerationWorld, draw_generation, judge_request
from tests.fixtures.power_traces import budget_of, make_counter
from tests.fixtures.rows import table_row


def test_between_queries_anything_from_idle_to_the_highest_power_is_held():
    """10 s at 9 W and 2 s between: an expanded uncertainty holds the 90 J whether the gaps drew 3 W, 9 W, or something between."""
    for gap_w in (3.0, 6.0, 9.0):
        own_mj, u_mj = between_term(90_000 + 2000 * gap_w, 12_000, 10_000, idle_w=3.0, highest_w=9.0)
        assert abs(own_mj - 90_000) <= 2 * u_mj < 7000, gap_w
    assert between_term(90_000, 10_000, 10_000, idle_w=3.0, highest_w=9.0) == (90_000, 0)


def test_what_a_server_does_between_requests_is_not_theirs():
    """Half a second at idle power, at that of decoding or of prefill; a late sensor shows none of it apart, nor the peak."""
    for late in ({}, {"lag_s": 0.5}, {"window_s": 1.0}, {"transport_s": 0.3}):
        for pause_w in (3.0, 6.0, 9.5):
            with table_row(late, pause_w):
                world = GenerationWorld(pause_s=0.5, pause_w=pause_w, timed_s=60.0, idle_s=20.0, **late)
                trial = draw_generation(world, np.random.default_rng(4), gain_z=0.0)
                energy = judge_request(trial)
                assert abs(energy.gross_mj / 1000 - trial.gross_j) <= energy.gross_u_mj / 1000 <= 0.1 * trial.gross_j
                assert abs(energy.net_mj / 1000 - trial.net_j) <= energy.net_u_mj / 1000
                assert energy.gross_mj == pytest.approx(energy.mean_power_w * energy.window_ms / trial.run.inferences)
                assert budget_of(trial.trace, trial.run)["between"].u_mj > 0


def test_an_energy_counter_gives_the_requests_alone():
    """At 5 W all through, a request of 4.2 s takes 21 J, whatever the pauses."""
    trial = draw_generation(GenerationWorld(pause_s=0.6, timed_s=60.0), np.random.default_rng(7))
    energy, why = assess(make_counter(5.0, 130.0), trial.run)
    assert why is None
    assert energy.gross_mj == pytest.approx(5.0 * float(trial.run.queries.durations_ns.mean()) / 1e6, rel=0.001)
