"""Facts about `edgemeter.agent.session.ab`: order, what counts of the runs (sessions are played by a script of outcomes), judgement."""

from math import log

import numpy as np
import pytest

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.session import ab, session
from tests.fixtures.record_factory import make_latency, make_record
from tests.fixtures.replay_case import replay_case

WHO = session.DeviceIdentity("bench", "lab")


def run_of(p50_ms: float, state: str = "valid", *reasons: str):
    """Return a record with this p50 and verdict."""
    return make_record(latency=make_latency(p50_ms=p50_ms), verdict=Verdict(state=state, reasons=reasons))


@pytest.fixture
def compare(monkeypatch, tmp_path):
    """Return a comparison whose runs come from functions of the pair: `compare(a, b, pairs)`."""
    cases = replay_case(tmp_path, "a", 1.0), replay_case(tmp_path, "b", 1.0)

    def compared(a, b, pairs=10):
        def measure(_suite, _identity, _sensors, _why, _on_event, _keep, *, order):
            for case, pair in order:
                yield (b if case.model.endswith("b.replay.json") else a)(pair)

        monkeypatch.setattr(session, "measure", measure)
        return ab.compare_cases(*cases, pairs, WHO, lambda _: None, 0.03)

    return compared


def test_runs_are_measured_in_turn_and_each_pair_the_other_way_round(tmp_path):
    """AB BA AB: a steady drift favours neither."""
    a, b = replay_case(tmp_path, "a", 1.0), replay_case(tmp_path, "b", 1.0)
    assert ab.abba_order(a, b, 3) == [(a, 0), (b, 0), (b, 1), (a, 1), (a, 2), (b, 2)]


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
    """The other run of the pair does not count either; the reasons are stated."""

    def b(pair):
        if pair == 1:
            return MeasurementError("it died")
        return run_of(10.0, "invalid", "throttled: the board throttled") if pair == 2 else run_of(10.0)

    found = compare(lambda pair: run_of(10.0 + pair), b, 4)
    assert found.a.p50_ms == (10.0, 13.0)
    assert found.left_out == ("pair 2, B: it died", "pair 3, B: throttled: the board throttled")
    assert len(found.runs) == 7


def test_suspect_runs_count_and_are_counted(compare):
    """A doubt is stated with its number of runs."""
    found = compare(lambda _: run_of(10.0, "suspect", "busy-machine: 20 %"), lambda pair: run_of(10.0 + 0.01 * pair), 3)
    assert found.doubts == ("busy-machine: 3 of 6 runs",)
    assert found.judgement.pairs == 3


def test_without_one_sound_pair_there_is_no_comparison(compare):
    """It states how the runs ended."""
    with pytest.raises(MeasurementError, match="no pair of runs can be compared: pair 1, B: it died"):
        compare(lambda _: run_of(10.0), lambda _: MeasurementError("it died"), 1)


@pytest.mark.slow
@pytest.mark.alone
def test_a_real_comparison_finds_the_slower_model(tmp_path):
    """In real processes: a replay of 3 ms against one of 2 ms."""
    found = ab.compare_cases(replay_case(tmp_path, "a", 2.0), replay_case(tmp_path, "b", 3.0), 3, WHO, lambda _: None, 0.03)
    assert found.judgement.state == "slower"
    assert found.judgement.ratio == pytest.approx(1.5, rel=0.1)
    assert all(run.accuracy is None for run in found.runs)


# Ten pairs, spread by about 1 % around 0.
NOISE = np.array([0.011, -0.009, 0.004, -0.012, 0.008, -0.003, 0.012, -0.007, 0.001, -0.005])


def judged(shift: float, scale: float = 1.0, count: int = 10, **settings):
    """Return the judgement on so many pairs whose log ratios lie around `shift`."""
    return ab.judge_pairs((shift + scale * NOISE[:count]).tolist(), **settings)


@pytest.mark.parametrize(
    ("ratio", "scale", "state"),
    [
        (1.1, 1.0, "slower"),
        (0.9, 1.0, "faster"),
        (1.0, 1.0, "no difference that matters"),
        (1.005, 1.0, "no difference that matters"),
        (1.02, 0.1, "no difference that matters"),
        (1.02, 5.0, "not enough runs"),
        (1.0, 5.0, "not enough runs"),
    ],
)
def test_ratio_and_spread_make_the_verdict(ratio, scale, state):
    """A clear difference, a clear absence of one that matters, and what is undecided."""
    found = judged(log(ratio), scale)
    assert found.state == state
    assert found.low <= ratio <= found.high
    assert found.ratio == pytest.approx(ratio, rel=0.01 * scale)
    assert (found.more_pairs is None) == (state != "not enough runs")


def test_what_matters_is_the_users_choice():
    """Two percent with hardly any spread do not matter by default, and are slower where 1 % matters."""
    assert judged(log(1.02), 0.1).state == "no difference that matters"
    assert judged(log(1.02), 0.1, matters_ratio=0.01).state == "slower"


def test_the_foreseen_pairs_are_about_enough():
    """Four of five comparisons with the foreseen number of pairs are settled; the wider the spread, the more are foreseen."""
    found = judged(0.0, 5.0)
    assert found.state == "not enough runs"
    assert 5 < found.more_pairs < judged(0.0, 9.0).more_pairs
    draw, spread = np.random.default_rng(1), float(np.std(5 * NOISE, ddof=1))
    centre = log(found.ratio)
    states = [ab.judge_pairs(draw.normal(centre, spread, 10 + found.more_pairs).tolist()).state for _ in range(200)]
    assert 0.7 <= 1 - states.count("not enough runs") / 200 <= 0.92


def test_where_a_thousand_pairs_would_not_do_none_are_foreseen():
    """A ratio at the border of what matters, with a wide spread, is not settled by patience."""
    assert judged(log(1.03), 100.0).more_pairs is None


def test_one_pair_gives_only_its_ratio():
    """There is no spread to judge by, and so no interval."""
    found = ab.judge_pairs([log(1.5)])
    assert (found.state, found.ratio, found.low, found.high, found.more_pairs) == ("not enough runs", pytest.approx(1.5), None, None, None)
    assert ab.judge_pairs([]).ratio is None


def test_only_a_clear_answer_ends_a_comparison_early():
    """A difference of 50 % ends it at the fifth pair, not before; the answer that ten pairs just support does not, nor an open one."""
    clear = (log(1.5) + NOISE).tolist()
    assert [ab.is_settled(clear[:n], 10) for n in (4, 5, 10)] == [False, True, False]
    weak = (log(1.03) + NOISE).tolist()
    assert ab.judge_pairs(weak).state == "slower"
    assert not ab.is_settled(weak[:5], 10)
    assert not any(ab.is_settled((5 * NOISE).tolist()[:n], 10) for n in range(11))


def test_the_longer_the_plan_the_stricter_each_look():
    """All looks share one error: five pairs that end a comparison of ten do not end one of a thousand."""
    rows = [(log(1.5) + scale * NOISE[:5]).tolist() for scale in (1, 2, 3, 4, 5, 6, 7)]
    short, long = ([ab.is_settled(row, planned) for row in rows] for planned in (10, 1000))
    assert sum(short) > sum(long) > 0
