from types import SimpleNamespace

import msgspec
import pytest

from edgemeter.agent.contract.record_generation import TokenLengths
from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.compare.judgement import SmallestDifferences, is_in_turn, why_not_compared
from edgemeter.collector.compare.spread import RunPoint, of_counted
from edgemeter.collector.runs.store import StoreContents
from tests.fixtures.comparison_factory import compare_runs, day_by_day, make_reference, make_run
from tests.fixtures.record_factory import make_accuracy, make_energy, make_generation, make_latency, make_steady
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9
NOISE = (0.995, 1.0, 1.005, 0.998, 1.002, 1.001)


def judged(own_ms, reference_ms=2.0, runs=NOISE, apart_ns=DAY_NS, **changes):
    """Return the judgements on a device against the reference, one run for each factor, started so far apart."""
    both = []
    for index, factor in enumerate(runs):
        at = {"started_at_ns": 1_760_000_000 * 10**9 + index * apart_ns}
        both += [make_run(p50_ms=own_ms * factor, **at, **changes), make_reference(p50_ms=reference_ms * factor, **at)]
    (row,) = [row for row in compare_runs(*both).rows if not row.is_reference]
    return row.judgements


def test_a_latency_is_judged_by_where_its_interval_lies():
    """Beyond what matters, within it, or between."""
    for own_ms, state, word in (
        (10.0, "higher", "worse: 5 times the p50"),
        (1.0, "lower", "better: 0.5 times the p50"),
        (2.0, "alike", "alike: 1.000 times the p50"),
        (2.06, "higher", "worse, perhaps by less than the 3% that matter: 1.030 times the p50"),
        (1.94, "lower", "better, perhaps by less than the 3% that matter: 0.970 times the p50"),
    ):
        with table_row(own_ms):
            judgement = judged(own_ms)["latency_p50_ms"]
            assert (judgement.outcome, judgement.words.startswith(word)) == (state, True), judgement


def test_noise_settles_nothing_and_the_outcome_states_how_many_runs_would():
    """The number is for each side; of a single run nothing is known of the spread."""
    judgement = judged(2.1, runs=(0.9, 1.1, 0.8, 1.2, 1.0, 1.05))["latency_p50_ms"]
    assert judgement.outcome == "not settled"
    assert "more days on each side would settle it" in judgement.words
    judgement = judged(10.0, runs=(1.0,))["latency_p50_ms"]
    assert judgement.outcome == "not judged"


def test_runs_are_in_turn_if_at_most_two_of_a_side_follow_each_other():
    """AB BA is, AAABBB is not, nor are two boards."""

    def side(device, starts):
        return SimpleNamespace(device=device, runs=[SimpleNamespace(started_at_ns=start) for start in starts])

    assert is_in_turn(side("a", [1, 4, 5]), side("a", [2, 3, 6]))
    assert not is_in_turn(side("a", [1, 5, 6]), side("a", [2, 3, 4]))
    assert not is_in_turn(side("a", [1, 4]), side("b", [2, 3]))


def test_another_class_of_precision_gets_no_verdict():
    """The ratio stands; like is not compared with like. 16-bit floats are one class."""
    judgement = judged(10.0, precision="int8")["latency_p50_ms"]
    assert judgement.outcome == "not judged"
    halves = [make_run(precision="bf16"), make_reference(), make_reference(precision="fp16", sha256="b2" * 32)]
    row = compare_runs(*halves).rows[-1]
    assert (row.reference.key.precision, row.choice) == (
        "fp16",
        "the same class of precision (fp16 on onnx): the reference has no bf16 on onnx",
    )


def test_what_matters_can_be_set():
    """With 10% at stake 6% are none."""
    runs = day_by_day([make_run(p50_ms=2.12 * factor) for factor in NOISE], [make_reference(p50_ms=2.0 * factor) for factor in NOISE])
    row = compare(StoreContents(runs), "reference", SmallestDifferences(ratio=0.1)).rows[-1]
    assert row.judgements["latency_p50_ms"].outcome == "alike"
    assert compare(StoreContents(runs), "reference").rows[-1].judgements["latency_p50_ms"].outcome == "higher"


def test_what_meters_may_be_wrong_by_counts_between_two_of_them():
    """10% more, each good to 8%: not settled by two meters, settled by one on one board; without a stated uncertainty not judged."""
    energy = {"gross_u_mj": 8.0, "net_u_mj": 8.0}
    runs = [
        run
        for factor in NOISE
        for run in (
            make_run(energy=make_energy(gross_mj=110 * factor, **energy)),
            make_reference(energy=make_energy(gross_mj=100 * factor, **energy)),
        )
    ]
    (row,) = [row for row in compare_runs(*runs).rows if not row.is_reference]
    assert row.judgements["energy_gross_mj"].outcome == "not settled"
    assert row.ratios.intervals.get("energy_gross_mj")[0] < 1.0
    runs = day_by_day(
        [make_run(energy=make_energy(gross_mj=100 * factor, gross_u_mj=8.0), threads=1) for factor in NOISE],
        [make_run(energy=make_energy(gross_mj=110 * factor, gross_u_mj=8.0), threads=1, role="reference") for factor in NOISE],
    )
    (row,) = [row for row in compare(StoreContents(runs), "reference").rows if not row.is_reference]
    assert row.judgements["energy_gross_mj"].outcome == "lower"
    runs = [run for _ in NOISE for run in (make_run(energy=make_energy(gross_u_mj=None)), make_reference())]
    judgement = compare_runs(*runs).rows[-1].judgements["energy_gross_mj"]
    assert judgement.outcome == "not judged"


def test_accuracies_are_compared_by_their_bounds_over_images():
    """80 images do not separate 0.60 from 0.58; narrow bounds do; equal values of models that may fail on other images leave it open."""

    def table_row(value, other, half):
        accuracies = [make_accuracy(value=value, low=value - half, high=value + half) for value in (value, other)]
        return compare_runs(make_run(accuracy=accuracies[0]), make_reference(accuracy=accuracies[1])).rows[-1].judgements["accuracy_value"]

    assert table_row(0.58, 0.60, 0.05).outcome == "not settled"
    assert table_row(0.58, 0.60, 0.002).outcome == "lower"
    assert table_row(0.6, 0.6, 0.05).words.startswith("not settled: AP 0.600 against 0.600, +0.000 (95%: -0.071 to +0.071")
    assert table_row(0.6, 0.6, 0.002).outcome == "alike"


def test_a_case_below_the_gate_has_no_verdict_on_its_speed():
    """Its ratios are withheld, so there is nothing to judge but the accuracy."""
    runs = [run for _ in NOISE for run in (make_run(ap=0.1, precision="int8"), make_reference(ap=0.6))]
    output = compare_runs(*runs).rows[-1].judgements
    assert (output["latency_p50_ms"], output["energy_gross_mj"]) == (None, None)
    assert output["accuracy_value"] is not None


def test_accuracies_are_compared_image_by_image_where_the_records_allow_it():
    """Images that are hard for both decide nothing: 3 points are less accurate for certain, which two independent accuracies leave open."""
    wobble = [0.004 * (index % 5 - 2) for index in range(20)]
    first, other = (
        make_accuracy(value=value, low=value - 0.05, high=value + 0.05, without_parts=tuple(value + size * step for step in wobble))
        for value, size in ((0.60, 1.0), (0.63, 1.1))
    )

    def judged(value, reference):
        return compare_runs(make_run(accuracy=value), make_reference(accuracy=reference)).rows[-1].judgements["accuracy_value"]

    assert judged(first, other).outcome == "lower"
    assert judged(first, msgspec.structs.replace(other, without_parts=())).outcome == "not settled"


def test_a_difference_of_accuracies_that_no_part_moves_is_not_judged_by_an_interval():
    """The same in every part: the same. All found against nothing found: the difference and why it has no interval, not a sure verdict."""

    def table_row(value, reference):
        accuracies = [make_accuracy(value=value, low=None, high=None, without_parts=(value,) * 20) for value in (value, reference)]
        return compare_runs(make_run(accuracy=accuracies[0]), make_reference(accuracy=accuracies[1])).rows[-1]

    same, apart = table_row(1.0, 1.0), table_row(1.0, 0.0)
    assert (same.ratios.values.get("accuracy_value"), same.ratios.intervals.get("accuracy_value")) == (0.0, None)
    assert same.judgements["accuracy_value"].outcome == "alike"
    assert (apart.ratios.intervals.get("accuracy_value"), apart.judgements["accuracy_value"].outcome) == (None, "not judged")


def test_queries_of_other_answers_or_other_prompts_are_not_compared():
    """39 tokens against 61: no latency, what counts by the token stays; 64 of a file's 80 prompts against 88: memory and score alone."""
    both = []
    for index, factor in enumerate(NOISE):
        at = {"started_at_ns": 1_760_000_000 * 10**9 + index * DAY_NS}
        for make, mean_tokens in ((make_run, 39.2), (make_reference, 61.3)):
            lengths = TokenLengths(min_tokens=3, mean_tokens=mean_tokens, max_tokens=64)
            generation = make_generation(output_tokens=64, output_lengths=lengths)
            both.append(make(p50_ms=2.0 * factor, generation=generation, task="generation", ap=None, **at))
    (row,) = [row for row in compare_runs(*both).rows if not row.is_reference]
    assert "latency_p50_ms" not in row.ratios.values
    assert "generation_tpot_p50_ms" in row.ratios.values
    assert why_not_compared("latency_p50_ms", row.case, row.reference)
    generation = make_generation(prompts="q.jsonl", prompts_sha256="e" * 64)
    shared = {"generation": generation, "task": "generation", "ap": None}
    runs = [make(latency=make_latency(count=count), **shared) for make, count in ((make_run, 88), (make_reference, 64))]
    (row,) = [row for row in compare_runs(*runs).rows if not row.is_reference]
    assert not {"latency_p50_ms", "generation_ttft_p50_ms", "generation_tpot_p50_ms", "generation_decode_tokens_per_s"} & set(
        row.ratios.values
    )
    assert "memory_peak_mb" in row.ratios.values
    assert why_not_compared("generation_ttft_p50_ms", row.case, row.reference)


def steady_row(missed, reference_missed, runs=3, frames=900):
    """Return the row of a device that missed so many of 900 frames in each run, beside a reference that missed others."""
    both = []
    for day in range(runs):
        at = {"started_at_ns": 1_760_000_000 * 10**9 + day * DAY_NS, "scenario": "steady"}
        both += [
            make(**at, steady=make_steady(late=late, missed_ratio=late / frames))
            for make, late in ((make_run, missed), (make_reference, reference_missed))
        ]
    (row,) = [row for row in compare_runs(*both).rows if not row.is_reference]
    return row


def test_missed_frames_are_judged_by_points():
    """A side that misses none is the usual one: there is no ratio to it, and there is a difference."""
    for missed, reference_missed, outcome, difference in (
        (180, 0, "higher", 0.2),
        (0, 180, "lower", -0.2),
        (0, 0, "alike", 0.0),
        (45, 41, "not settled", 4 / 900),
    ):
        with table_row(missed, reference_missed):
            row = steady_row(missed, reference_missed)
            assert row.judgements["steady_missed_ratio"].outcome == outcome
            assert row.ratios.values["steady_missed_ratio"] == pytest.approx(difference)


def test_runs_that_lie_apart_widen_the_bounds_of_a_share():
    """Of 900 frames each run missed 0, 0 and 270: the mean says little of the next run."""
    spread = of_counted([RunPoint(share, "pi", day) for day, share in enumerate((0.0, 0.0, 0.3))], 0.1, (0.09, 0.11))
    assert (spread.median, spread.low, spread.high, spread.interval.low) == (0.1, 0.0, 0.3, 0.0)
    assert spread.interval.high > 0.5
