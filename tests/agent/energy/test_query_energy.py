"""Facts about the energy within queries of a language model, over made-up loads with real edges and sensors that are late."""

import time
from typing import Any

import numpy as np
import pytest

from edgemeter.agent import generators
from edgemeter.agent.energy.per_inference import assess
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine.generation_queries import GenerationSubject
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.request_loops import run_queries
from edgemeter.agent.generators import Limits
from edgemeter.agent.power import Reading
from edgemeter.agent.runtimes import Options
from tests.fixtures.generation_worlds import GenerationWorld, draw_generation, judge
from tests.fixtures.language_server import LanguageServer, Reply, events
from tests.fixtures.power_traces import make_counter, make_description
from tests.fixtures.rows import table_row
from tests.fixtures.sensor_worlds import level_signal

LONG = {"prefill_s": 4.0, "decode_s": 8.0, "timed_s": 72.0, "idle_s": 20.0}
LATE = [{"lag_s": 0.5}, {"window_s": 1.0}, {"transport_s": 0.3}]


def test_what_a_late_sensor_shows_after_a_border_belongs_before_it():
    """Uncorrected, half a second of lag takes 5% from the prefill and gives 4% to decoding; each form of delay is put right."""
    for late in LATE:
        with table_row(late):
            trial = draw_generation(GenerationWorld(**(LONG | late)), np.random.default_rng(3), gain_z=0.0)
            figures, _ = judge(trial)
            for part in ("prefill", "decode"):
                gross_j, gross_u_j, net_j, net_u_j = figures[part]
                assert abs(gross_j - trial.gross_j[part]) <= gross_u_j <= 0.05 * gross_j
                assert abs(net_j - trial.net_j[part]) <= net_u_j
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
            assert energy.between_ms == pytest.approx(600 * (energy.inferences - 1), rel=0.05)
            assert energy.gross_mj == pytest.approx(energy.mean_power_w * energy.window_ms / energy.inferences)


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
    (between,) = [term for term in energy.budget if term.term == "between"]
    assert 0 < between.u_mj < 100
    assert abs(energy.gross_mj / 1000 - trial.gross_j["request"]) <= energy.gross_u_mj / 1000


def test_an_energy_counter_gives_the_requests_alone():
    """At 5 W all through, a request of 4.2 s takes 21 J, whatever the pauses."""
    trial = draw_generation(GenerationWorld(pause_s=0.6, timed_s=60.0), np.random.default_rng(7))
    energy, why = assess(make_counter(5.0, 130.0), trial.run)
    assert why is None
    request_ms = (trial.windows.last_ns - trial.windows.starts_ns).mean() / 1e6
    assert energy.gross_mj == pytest.approx(5.0 * request_ms, rel=0.001)


class EvictingServer:
    """A server of language models without a switch for its cache, which takes twice as long for a request as for what drives it out."""

    def __init__(self) -> None:
        self.worked_ns: list[tuple[int, int]] = []
        answer = events(
            *({"choices": [{"text": text}]} for text in "abc"), {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 3}}
        )
        models = Reply({"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "me"}]})

        def complete(content: Any) -> Reply:
            begin_ns = time.monotonic_ns()
            time.sleep(0.02 if "Another" in content["prompt"] else 0.04)
            self.worked_ns.append((begin_ns, time.monotonic_ns()))
            return answer

        self.server = LanguageServer({"/v1/models": lambda _: models, "/v1/completions": complete})


@pytest.mark.alone
def test_a_served_request_has_its_energy_whatever_else_the_server_does(tmp_path):
    """A real server, fifty times slower: 9 W while it works, also on untimed prompts, would be half as much again to a request."""
    serving, slower = EvictingServer(), 50
    path = tmp_path / "m.server"
    path.write_text(f'url = "{serving.server.url}"\n')
    generator = generators.create("server")
    loaded = generator.load(path, Options(), 64)
    subject = GenerationSubject(generator, loaded, SyntheticPrompts(loaded, 8, 1), Limits(3))
    timed = run_queries(subject, 12, 0.0).timed()
    generator.close()
    serving.server.close()
    zero_ns = timed.begin_ns - int(30e9 / slower)
    work_s = (np.array(serving.worked_ns[1:]) - zero_ns).ravel() * slower / 1e9
    end_s = work_s[-1] + 30
    power = level_signal(np.array([0.0, *work_s, end_s]), np.array([3.0, *[9.0, 3.0] * (work_s.size // 2)]))
    starts_ns, durations_ns = (timed.starts_ns - zero_ns) * slower, timed.latency_ns * slower
    count = int(end_s * 20)
    at = (np.arange(count) + np.random.default_rng(8).random(count)) / 20
    shown_w = power.lagged_w(at, 0.1)
    readings = tuple(Reading(int(when * 1e9), power_w=float(value)) for when, value in zip(at, shown_w, strict=True))
    trace = SensorTrace("bench", make_description(period_ms=50.0), readings)
    last_ns = int(starts_ns[-1] + durations_ns[-1])
    windows = Window(int(starts_ns[0]), last_ns), Window(0, int(starts_ns[0]) - int(2e9)), Window(last_ns, int(end_s * 1e9))
    run = EnergyRun(*windows, 12, Queries(starts_ns, durations_ns, last_ns), counts_inferences=False)
    energy, why = assess(trace, run)
    assert why is None
    true_mj = float(np.mean(power.energy_j((starts_ns + durations_ns) / 1e9) - power.energy_j(starts_ns / 1e9))) * 1000
    whole_mj = float(power.energy_j(np.array(last_ns / 1e9)) - power.energy_j(np.array(starts_ns[0] / 1e9))) * 1000 / 12
    assert whole_mj > 1.3 * true_mj
    # What the connection takes before and after the work is fifty times as long too.
    assert energy.gross_mj == pytest.approx(true_mj, rel=0.02)
