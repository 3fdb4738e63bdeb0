"""Facts about `edgemeter.agent.engine.ab`: the order of runs, and what counts of them; sessions are played by a script of outcomes."""

import pytest

from edgemeter.agent.engine import ab, session
from edgemeter.agent.errors import MeasurementError
from edgemeter.agent.records import Verdict
from tests.fixtures.record_factory import make_latency, make_record
from tests.fixtures.replay_case import replay_case

WHO = session.Identity("bench", "lab")


def run_of(p50_ms: float, state: str = "valid", *reasons: str):
    """Return a record with this p50 and verdict."""
    return make_record(latency=make_latency(p50_ms=p50_ms), verdict=Verdict(state=state, reasons=reasons))


@pytest.fixture
def compare(monkeypatch, tmp_path):
    """Return a comparison whose runs come from functions of the pair: `compare(a, b, pairs)`."""
    cases = replay_case(tmp_path, "a", 1.0), replay_case(tmp_path, "b", 1.0)

    def compared(a, b, pairs=10):
        def measure(_suite, _who, _sensors, _why, _tell, *, order):
            for case, pair in order:
                yield (b if case.model.endswith("b.replay.json") else a)(pair)

        monkeypatch.setattr(session, "measure", measure)
        return ab.compare(*cases, pairs, WHO, lambda _: None, 0.03)

    return compared


def test_runs_are_measured_in_turn_and_each_pair_the_other_way_round(tmp_path):
    """AB BA AB: a steady drift favours neither."""
    a, b = replay_case(tmp_path, "a", 1.0), replay_case(tmp_path, "b", 1.0)
    assert ab.order(a, b, 3) == [(a, 0), (b, 0), (b, 1), (a, 1), (a, 2), (b, 2)]


def test_each_side_gets_its_own_runs(compare):
    """B's latencies are B's in every pair, whichever came first; a difference of 50 % ends it after five pairs."""
    found = compare(lambda pair: run_of(10.0 + 0.01 * pair), lambda pair: run_of(15.0 - 0.01 * pair))
    assert found.a.p50_ms == (10.0, 10.01, 10.02, 10.03, 10.04)
    assert found.b.p50_ms == (15.0, 14.99, 14.98, 14.97, 14.96)
    assert (found.judgement.state, found.judgement.pairs, len(found.runs)) == ("slower", 5, 10)
    assert found.judgement.ratio == pytest.approx(1.495, abs=0.003)
    assert found.b.median_ms == 14.98
    assert found.b.low_ms < 14.96
    assert found.b.high_ms > 15.0
    assert found.tests.mann_whitney_p == pytest.approx(2 / 252)
    assert found.tests.welch_p < 1e-6
    assert found.tests.hedges_g > 100


def test_a_pair_with_a_failed_or_invalid_run_is_left_out_and_named(compare):
    """The other run of the pair does not count either; the reasons are told."""

    def b(pair):
        if pair == 1:
            return MeasurementError("it died")
        return run_of(10.0, "invalid", "throttled: the board throttled") if pair == 2 else run_of(10.0)

    found = compare(lambda pair: run_of(10.0 + pair), b, 4)
    assert found.a.p50_ms == (10.0, 13.0)
    assert found.left_out == ("pair 2, B: it died", "pair 3, B: throttled: the board throttled")
    assert len(found.runs) == 7


def test_suspect_runs_count_and_are_counted(compare):
    """A doubt is told with the number of runs that it is of."""
    found = compare(lambda _: run_of(10.0, "suspect", "busy-machine: 20 %"), lambda pair: run_of(10.0 + 0.01 * pair), 3)
    assert found.doubts == ("busy-machine: 3 of 6 runs",)
    assert found.judgement.pairs == 3


def test_without_one_sound_pair_there_is_no_comparison(compare):
    """It says what the runs ended with."""
    with pytest.raises(MeasurementError, match="no pair of runs can be compared: pair 1, B: it died"):
        compare(lambda _: run_of(10.0), lambda _: MeasurementError("it died"), 1)


@pytest.mark.slow
def test_a_real_comparison_finds_the_slower_model(tmp_path):
    """In real processes: a replay of 3 ms against one of 2 ms."""
    found = ab.compare(replay_case(tmp_path, "a", 2.0), replay_case(tmp_path, "b", 3.0), 3, WHO, lambda _: None, 0.03)
    assert found.judgement.state == "slower"
    assert found.judgement.ratio == pytest.approx(1.5, rel=0.1)
    assert all(run.accuracy is None for run in found.runs)
