"""Test how two cases differ.

The tests cover what compares, by which runs, and what meters and counts add.
"""

import msgspec
import pytest

from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.contract.record_generation import TokenLengths
from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.compare.figure_differences import why_not_compared
from edgemeter.collector.runs.store import MemoryStore
from tests.fixtures.comparison_factory import (
    booked,
    compare_runs,
    day_by_day,
    make_reference,
    make_run,
)
from tests.fixtures.record_factory import (
    make_accuracy,
    make_energy,
    make_generation,
    make_latency,
    make_steady,
)
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9
NOISE = (0.995, 1.0, 1.005, 0.998, 1.002, 1.001)


def only_row(*runs, matters_ratio=None):
    comparison = compare(booked(runs), "reference", matters_ratio or MATTERS_RATIO)
    (row,) = [row for row in comparison.rows if not row.is_reference]
    return row


def test_runs_of_one_session_are_compared_in_pairs():
    """Paired rounds show 5%, although the machine's rounds differ by half.

    The same runs of two sessions do not show it.
    """
    drift = (1.0, 1.5, 0.8, 1.2)

    def row(session_of_reference):
        sides = []
        for repeat, level in enumerate(drift):
            shared = {"repeat": repeat, "device": "pi-1"}
            sides.append(
                make_run(
                    p50_ms=10.5 * level * (1 + repeat / 1000), session_started_at_ns=5, **shared
                )
            )
            sides.append(
                make_reference(
                    p50_ms=10.0 * level, session_started_at_ns=session_of_reference, **shared
                )
            )
        return only_row(*sides)

    paired, apart = (row(session).decisions["latency_p50_ms"] for session in (5, 6))
    assert (paired.outcome, paired.evidence.unit, paired.evidence.units) == ("worse", "pair", 4)
    assert (apart.outcome, apart.evidence.unit) == ("inconclusive", "run")


def test_what_meters_may_be_wrong_by_counts_between_two_of_them():
    """A difference of 10% by two meters, each good to 8%, is inconclusive.

    One meter on one board shows it; without a stated uncertainty it is not compared.
    """
    two = [
        run
        for factor in NOISE
        for run in (
            make_run(energy=make_energy(gross_mj=110 * factor, gross_u_mj=8.0)),
            make_reference(energy=make_energy(gross_mj=100 * factor, gross_u_mj=8.0)),
        )
    ]
    assert only_row(*two).decisions["energy_gross_mj"].outcome == "inconclusive"
    one_meter = day_by_day(
        [make_run(energy=make_energy(gross_mj=110 * factor, gross_u_mj=8.0)) for factor in NOISE],
        [
            make_run(energy=make_energy(gross_mj=100 * factor, gross_u_mj=8.0), role="reference")
            for factor in NOISE
        ],
    )
    assert only_row(*one_meter).decisions["energy_gross_mj"].outcome == "worse"
    row = only_row(
        *(
            run
            for _ in NOISE
            for run in (make_run(energy=make_energy(gross_u_mj=None)), make_reference())
        )
    )
    assert (
        why_not_compared("energy_gross_mj", row.case, row.reference)
        == "the uncertainty of a meter is unknown"
    )


def test_accuracies_are_compared_by_their_bounds_over_images():
    """80 images do not separate 0.60 from 0.58, narrow bounds do.

    Equal values of models that may fail on other images leave it open.
    """

    def outcome(value, other, half):
        accuracies = [
            make_accuracy(value=value, low=value - half, high=value + half)
            for value in (value, other)
        ]
        return (
            only_row(make_run(accuracy=accuracies[0]), make_reference(accuracy=accuracies[1]))
            .decisions["accuracy_value"]
            .outcome
        )

    assert outcome(0.58, 0.60, 0.05) == "inconclusive"
    assert outcome(0.58, 0.60, 0.002) == "worse"
    assert outcome(0.6, 0.6, 0.05) == "inconclusive"
    assert outcome(0.6, 0.6, 0.002) == "no difference"


def test_accuracies_are_compared_image_by_image_where_the_records_allow_it():
    """Images that are hard for both models decide nothing, so 3 points are shown.

    Two independent accuracies leave that open.
    """
    wobble = [0.004 * (index % 5 - 2) for index in range(20)]
    first, other = (
        make_accuracy(
            value=value,
            low=value - 0.05,
            high=value + 0.05,
            without_parts=tuple(value + size * step for step in wobble),
        )
        for value, size in ((0.60, 1.0), (0.63, 1.1))
    )
    independent = msgspec.structs.replace(other, without_parts=())
    outcomes = [
        only_row(make_run(accuracy=first), make_reference(accuracy=side))
        .decisions["accuracy_value"]
        .outcome
        for side in (other, independent)
    ]
    assert outcomes == ["worse", "inconclusive"]


def test_the_accuracies_of_a_comparison_are_read_together(monkeypatch):
    """Records of many cases are not looked up one by one."""
    read, records = [], MemoryStore.records
    monkeypatch.setattr(
        MemoryStore,
        "records",
        lambda store, rows, **options: read.append(rows) or records(store, rows, **options),
    )
    comparison = compare_runs(
        *(make_run(device=f"pi-{number}") for number in range(5)), make_reference()
    )
    assert [len(row.decisions) for row in comparison.compared] == [3] * 5
    assert list(map(len, read)) == [6]


def test_queries_of_other_answers_or_other_prompts_are_not_compared():
    """Answers of 39 and 61 tokens have no comparable latency, only figures per token.

    64 of a file's 80 prompts against 88 compare by memory and score alone.
    """
    both = []
    for index, factor in enumerate(NOISE):
        at = {"started_at_ns": 1_760_000_000 * 10**9 + index * DAY_NS}
        for make, mean_tokens in ((make_run, 39.2), (make_reference, 61.3)):
            lengths = TokenLengths(min_tokens=3, mean_tokens=mean_tokens, max_tokens=64)
            generation = make_generation(output_tokens=64, output_lengths=lengths)
            both.append(
                make(p50_ms=2.0 * factor, generation=generation, task="generation", ap=None, **at)
            )
    row = only_row(*both)
    assert "generation_tpot_p50_ms" in row.decisions
    assert why_not_compared("latency_p50_ms", row.case, row.reference)
    generation = make_generation(prompts="q.jsonl", prompts_sha256="e" * 64)
    shared = {"generation": generation, "task": "generation", "ap": None}
    row = only_row(
        *(
            make(latency=make_latency(count=count), **shared)
            for make, count in ((make_run, 88), (make_reference, 64))
        )
    )
    assert not row.decisions
    assert why_not_compared("generation_ttft_p50_ms", row.case, row.reference)
    assert not why_not_compared("memory_peak_mb", row.case, row.reference)


def test_missed_frames_are_compared_by_points():
    """A side that misses no frame has a difference and no ratio.

    Such a side is the usual one; shares that scatter leave it open.
    """
    none, many = (0, 0, 0), (180, 170, 190)
    for missed, reference_missed, outcome, difference in (
        (many, none, "worse", 0.2),
        (none, many, "better", -0.2),
        (none, none, "no difference", 0.0),
        ((45, 60, 30), (41, 35, 47), "inconclusive", 4 / 900),
    ):
        with table_row(missed, reference_missed):
            both = []
            for day, counts in enumerate(zip(missed, reference_missed, strict=True)):
                at = {"started_at_ns": 1_760_000_000 * 10**9 + day * DAY_NS, "scenario": "steady"}
                both += [
                    make(**at, steady=make_steady(frames=900, late=late, missed_ratio=late / 900))
                    for make, late in zip((make_run, make_reference), counts, strict=True)
                ]
            decision = only_row(*both).decisions["steady_missed_ratio"]
            assert (decision.outcome, decision.value) == (outcome, pytest.approx(difference))
