"""Facts about `edgemeter.agent.session.in_turn`: order, what counts of the runs (of a script of outcomes), the sentence."""

from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract.record_conditions import Tensor
from edgemeter.agent.session import in_turn, session, turn_comparison
from tests.fixtures.record_factory import make_accuracy, make_energy, make_latency, make_record, make_steady, violating
from tests.fixtures.replay_case import replay_case
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import without_waiting

WHO = session.DeviceIdentity("bench", "lab")
BENCH = in_turn.Bench(WHO, {}, "no sensor here", lambda _: None)
PARTS = tuple(0.001 * (n % 3) for n in range(20))


def run_of(p50_ms: float, state: str = "ok", *rules: str, gross_mj: float | None = None, **changes):
    """Return a record with this p50 and verdict, and with this energy where it is given."""
    energy = {"energy": make_energy(gross_mj=gross_mj)} if gross_mj else {"energy": None, "reasons": {"energy": "no sensor here"}}
    return make_record(latency=make_latency(p50_ms=p50_ms), verdict=violating(state, *rules), **energy, **changes)


def scored_run(value: float, spread: float = 1.0, **changes):
    """Return a record with this accuracy."""
    accuracy = make_accuracy(value=value, without_parts=tuple(value + spread * step for step in PARTS), **changes)
    return run_of(1000.0, accuracy=accuracy)


@pytest.fixture
def compare(monkeypatch, tmp_path):
    """Return a comparison whose runs come from functions of the round, from 1: `compare(a, b, ...)`; with images 0 is the scored one."""

    def compared(*sides, rounds=10, images=None):
        cases = [msgspec.structs.replace(replay_case(tmp_path, f"side{n}", 1.0), data=images) for n in range(len(sides))]

        def measure(_suite, _identity, _sensors, _why, _on_event, _keep, plan):
            for case, n in plan:
                outcome = sides[int(case.model[-13])](n if images else n + 1)
                plan.note(outcome, 1.0)
                yield outcome

        monkeypatch.setattr(session, "measure", measure)
        compared.cases = cases
        return in_turn.measure_in_turn(cases, rounds, BENCH)

    return compared


def test_runs_are_measured_in_turn_and_each_round_the_other_way_round(tmp_path):
    """AB BA BA AB, ABC CBA: a steady drift favours none; what is scored comes first."""
    a, b, c = (replay_case(tmp_path, name, 1.0) for name in "abc")
    assert in_turn.order_of([a, b], 3, with_scoring=False) == [(a, 0), (b, 0), (b, 1), (a, 1), (b, 2), (a, 2)]
    assert in_turn.order_of([a, b, c], 2, with_scoring=True) == [(a, 0), (b, 0), (c, 0), (a, 1), (b, 1), (c, 1), (c, 2), (b, 2), (a, 2)]


def in_places(*places, cases="abc"):
    """Return records of three sides in the order ABC CBA, each given by its place, side and round."""
    return [make_record(id=str(turn[0]), case=cases[turn[1]], repeat=turn[2], order_place=turn[0]) for turn in places]


def test_turns_of_a_measurement_that_was_cut_off_are_those_of_its_records(tmp_path):
    """Whatever the order in which they arrive; a run that failed leaves a gap."""
    cases = [replay_case(tmp_path, name, 1.0) for name in "abc"]
    trio = in_turn.turns_of(cases, 4, in_places((6, 0, 1), (1, 0, 0), (2, 1, 0), (4, 2, 1)))
    assert [(turn.run, turn.side, turn.round) for turn in trio.turns] == [("1", 0, 0), ("2", 1, 0), ("4", 2, 1), ("6", 0, 1)]
    assert trio.most_runs == 12
    pair = in_turn.turns_of(cases[:1] * 2, 4, in_places((1, 0, 0), (2, 1, 0), (3, 1, 1), cases="aa"))
    assert [turn.side for turn in pair.turns] == [0, 1, 1]
    # What places do not show is refused, rather than one side's runs called another's.
    for places in (
        (),
        ((1, 0, 0), (2, 2, 0)),  # B was refused: its places are those of others.
        ((1, 0, 0), (3, 2, 0), (4, 2, 1), (5, 0, 1)),  # B was dropped after its first run.
        ((None, 0, 0),),
    ):
        with table_row(places), pytest.raises(MeasurementError):
            in_turn.turns_of(cases, 4, in_places(*places))


def test_each_side_gets_its_own_runs(compare):
    """B's latencies are B's in every pair, whichever came first; a difference of 50% ends it after five pairs."""
    comparison = compare(lambda n: run_of(9.99 + 0.01 * n), lambda n: run_of(15.01 - 0.01 * n))
    (a, b), (contrast,) = comparison.sides, comparison.contrasts
    assert a.p50_ms == pytest.approx((10.0, 10.01, 10.02, 10.03, 10.04))
    assert b.p50_ms == pytest.approx((15.0, 14.99, 14.98, 14.97, 14.96))
    assert (contrast.latency.state, contrast.latency.pairs, len(comparison.runs)) == ("higher", 5, 10)
    assert contrast.latency.ratio == pytest.approx(1.495, abs=0.003)
    assert b.median_ms == pytest.approx(14.98)
    assert b.low_ms < 14.96
    assert b.high_ms > 15.0
    assert contrast.tests.mann_whitney_p == pytest.approx(2 / 252)
    assert contrast.tests.welch_p < 1e-6
    assert contrast.tests.hedges_g > 100


def test_one_sentence_decides_between_two_models(compare):
    """Faster, less accurate, less energy, each with its interval; accuracies are those of the round that was scored."""
    comparison = compare(
        lambda n: run_of(14.0 + 0.01 * n, gross_mj=100 + 0.1 * n) if n else scored_run(0.4),
        lambda n: run_of(10.0 - 0.01 * n, gross_mj=77 - 0.1 * n) if n else scored_run(0.363, 2.0),
        images="photos",
    )
    (contrast,) = comparison.contrasts
    assert contrast.sentence == (
        "B is 1.41 times faster (95% 1.40 to 1.42), loses 3.7 AP points (95% 3.0 to 4.4) and costs 23.5% less energy (95% 22.7 to 24.4%)"
    )
    assert [max(side.p50_ms) for side in comparison.sides] == [pytest.approx(14.05), pytest.approx(9.99)]
    assert [side.accuracy_value for side in comparison.sides] == [0.4, 0.363]


def test_an_energy_that_is_not_settled_keeps_the_runs_coming(compare):
    """Latency is clear after five pairs, energy never: all ten are measured, and the sentence says that it is not sure."""
    comparison = compare(
        lambda n: run_of(10.0 + 0.01 * n, gross_mj=100 + 8 * (n % 3)),
        lambda n: run_of(15.0 - 0.01 * n, gross_mj=100 + 8 * (n % 4)),
    )
    (contrast,) = comparison.contrasts
    assert (contrast.latency.pairs, contrast.energy.state) == (10, "not settled")
    assert contrast.sentence.startswith("B is 1.4")
    assert "; not settled: energy (1.0" in contrast.sentence


def test_what_was_not_measured_is_not_judged_and_explained(compare):
    """No sensor, no photographs, a published energy: the reason stands beside the table; disturbed runs count and are counted."""
    comparison = compare(lambda n: run_of(10.0 + 0.01 * n, "disturbed", "busy-machine"), lambda n: run_of(15.0 + 0.01 * n), rounds=3)
    missing = {difference.figure: difference.note for difference in comparison.contrasts[0].differences if difference.state == "not judged"}
    assert missing == {"energy_gross_mj": "no sensor here", "accuracy_value": "not scored"}
    assert comparison.doubts == ("busy-machine: 3 of 6 runs",)
    changes = {"provenance": {"latency": "measured", "energy": "published"}}
    published = compare(*[lambda n: run_of(10.0 + 0.01 * n, gross_mj=50.0, **changes)] * 2)
    assert published.contrasts[0].energy is None
    hurried = make_steady(deadline_ms=40.0, late=900, missed_ratio=1.0)
    other_work = compare(lambda _: steady_run(0), lambda _: run_of(12.0, scenario="steady", steady=hurried))
    assert {"steady_missed_ratio", "latency_p50_ms"} <= {
        difference.figure for difference in other_work.contrasts[0].differences if difference.change is None
    }


def test_accuracies_of_other_images_are_not_compared(compare):
    """Another metric or other images: both are shown, and no difference."""
    sides = [scored_run(0.4), scored_run(0.5, metric="top1")]
    comparison = compare(*[lambda n, first=first: run_of(10.0 + 0.01 * n) if n else first for first in sides], images="photos")
    (accuracy,) = [difference for difference in comparison.contrasts[0].differences if difference.figure == "accuracy_value"]
    assert (accuracy.state, accuracy.a, accuracy.b) == ("not judged", 0.4, 0.5)


def test_a_pair_with_a_failed_or_invalid_run_is_left_out_and_named(compare):
    """The other run of the pair does not count either; the reasons are stated."""

    def b(n):
        if n == 2:
            return MeasurementError("it died")
        return run_of(10.0, "invalid", "throttled") if n == 3 else run_of(10.0)

    comparison = compare(lambda n: run_of(9.0 + n), b, rounds=4)
    assert comparison.contrasts[0].latency.pairs == 2
    assert comparison.left_out == ("pair 2, B: it died", "pair 3, B: the processor was throttled")
    assert len(comparison.runs) == 7
    with pytest.raises(MeasurementError, match="no pair of runs can be compared: pair 1, B: it died"):
        compare(lambda _: run_of(10.0), lambda _: MeasurementError("it died"), rounds=1)


def test_inputs_of_other_sizes_are_named_whatever_their_layout(compare):
    """A model of 320 pixels is no faster way to do what one of 640 does; channels first or last is the same size."""

    def taking(*shape):
        return lambda n: run_of(10.0 + 0.01 * n, inputs=(Tensor(name="images", shape=shape, dtype="float32"),))

    (contrast,) = compare(taking(1, 3, 640, 640), taking(1, 320, 320, 3), rounds=3).contrasts
    assert contrast.sentence.endswith("; inputs of other sizes: B takes 1x320x320x3, A 1x3x640x640")
    (contrast,) = compare(taking(1, 3, 640, 640), taking(1, 640, 640, 3), rounds=3).contrasts
    assert "inputs" not in contrast.sentence


def test_a_side_that_cannot_run_is_dropped_after_its_second_failure(compare):
    """The others go on, end early as if it were not there, and its reason stands once a failure."""
    begun = []

    def broken(n):
        begun.append(n)
        return MeasurementError("no kernel for it")

    comparison = compare(lambda n: run_of(9.99 + 0.01 * n), lambda n: run_of(15.01 - 0.01 * n), broken)
    assert begun == [1, 2]
    assert [side.label for side in comparison.sides if not side.p50_ms] == ["side2.replay.json replay 1 thread"]
    assert (len(comparison.sides[0].p50_ms), [contrast.name for contrast in comparison.contrasts]) == (5, ["B"])
    assert comparison.left_out == ("pair 1, C: no kernel for it", "pair 2, C: no kernel for it")


def test_an_interruption_keeps_what_is_measured(compare):
    """Ctrl-C after a pair: that pair is compared, and the result states it; before one there is nothing."""

    def interrupted(n):
        if n == 3:
            raise KeyboardInterrupt
        return run_of(15.0)

    comparison = compare(lambda _: run_of(10.0), interrupted)
    assert (comparison.is_interrupted, len(comparison.sides[1].p50_ms)) == (True, 2)
    with pytest.raises(KeyboardInterrupt):
        compare(lambda _: run_of(10.0), lambda _: interrupted(3))


def test_a_session_measures_in_the_order_that_it_is_given(monkeypatch, tmp_path):
    """Each outcome is that of its side, with what session makes of the order; what cannot run here is left out and named."""

    def measured(run, *_):
        return run_of({"a": 10.0, "b": 15.0}[Path(run.case.model).name[0]])

    monkeypatch.setattr(session, "measure_run", measured)
    without_waiting(monkeypatch)
    cases = [replay_case(tmp_path, name, 1.0) for name in "ab"]
    hopeless = msgspec.structs.replace(replay_case(tmp_path, "c", 1.0), runtime="litert", model=str(tmp_path / "c_edgetpu.tflite"))
    Path(hopeless.model).write_bytes(b"TFL3")
    comparison = in_turn.measure_in_turn([*cases, hopeless], 5, BENCH)
    assert [side.p50_ms for side in comparison.sides] == [(10.0,) * 5, (15.0,) * 5, ()]
    assert comparison.left_out[0].startswith("C: ")
    assert "is compiled for an Edge TPU" in comparison.left_out[0]
    with pytest.raises(ConfigError, match="is compiled for an Edge TPU"):
        in_turn.measure_in_turn([cases[0], hopeless], 5, BENCH)


def test_a_comparison_is_made_again_from_its_turns_and_records(compare):
    """With a side that failed, a run that counts nowhere and one that scored: the same to the last digit."""
    runs = {}

    def stored(run):
        record = msgspec.structs.replace(run, id=f"run-{len(runs)}")
        return runs.setdefault(record.id, record)

    def sometimes(n):
        return MeasurementError("it died") if n == 2 else stored(run_of(12.0 + 0.01 * n))

    for images in (None, "photos"):
        sides = (lambda n: stored(run_of(10.0 + 0.01 * n)), sometimes, lambda _: stored(run_of(9.0, "invalid", "hot")))
        measured = compare(*sides, rounds=6, images=images)
        turns = msgspec.json.decode(
            msgspec.json.encode(turn_comparison.TurnsTaken(turns=measured.turns, most_runs=18)), type=turn_comparison.TurnsTaken
        )
        cases = compare.cases
        remade = turn_comparison.compare_turns(cases, turns, runs)
        assert msgspec.structs.replace(remade, most_runs=measured.most_runs) == measured


def steady_run(late):
    """Return a record of 900 frames of which so many were late, at 12 ms each."""
    return run_of(12.0, scenario="steady", steady=make_steady(late=late, missed_ratio=late / 900))


def test_missed_frames_of_models_in_turn_are_compared(compare):
    """p50 does not see a fifth of the frames; 0 against 0 is alike."""
    for late, state in ((180, "higher"), (0, "alike")):
        (contrast,) = compare(lambda _: steady_run(0), lambda _, late=late: steady_run(late)).contrasts
        (missed,) = [difference for difference in contrast.differences if difference.figure == "steady_missed_ratio"]
        assert (missed.state, missed.a, missed.b) == (state, 0.0, late / 900)
