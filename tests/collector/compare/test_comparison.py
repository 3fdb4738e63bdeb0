import math
from statistics import geometric_mean, stdev

import pytest

from edgemeter.agent.base.evidence import SESSION_SD
from edgemeter.agent.contract import record_conditions, record_figures
from edgemeter.agent.contract.run_subject import subject_of
from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.runs.contents import LeftOut
from tests.fixtures.comparison_factory import (
    OTHER_DATA,
    booked,
    compare_runs,
    day_by_day,
    make_reference,
    make_run,
    no_energy,
)
from tests.fixtures.record_factory import (
    make_accuracy,
    make_energy,
    make_environment,
    make_generation,
    violating,
)
from tests.fixtures.rows import table_row


def only_reason(comparison):
    """Return the one reason for which something was left out."""
    (reason,) = {entry.reason for entry in comparison.left_out}
    return reason


def device_row(comparison):
    (row,) = [row for row in comparison.rows if not row.is_reference]
    return row


def value_of(row, name):
    return row.decisions[name].value if name in row.decisions else None


def test_the_reference_comes_first_and_stands_beside_itself():
    """A reader sees what the others are compared with."""
    first, second = compare_runs(make_run(), make_reference()).rows
    assert (first.is_reference, first.case.key.device, first.decisions) == (True, "server-1", {})
    assert "reference" in first.marks
    assert (second.is_reference, second.reference) == (False, first.case)
    (row,) = compare_runs(make_reference()).rows
    assert row.is_reference


def test_figures_are_means_over_the_runs_of_a_case_with_their_interval():
    """A figure is the geometric mean with Student's t.

    Too few queries give None, not 0, and of two runs there is no interval.
    """
    runs = [make_run(p50_ms=p50) for p50 in (10.0, 11.0, 12.0)]
    p50_ms = device_row(compare_runs(*runs, make_reference())).case.p50_ms
    reach = math.hypot(
        4.302653 * stdev(map(math.log, (10, 11, 12))) / math.sqrt(3), 1.959964 * SESSION_SD
    )
    middle = geometric_mean((10, 11, 12))
    assert (p50_ms.value, p50_ms.high) == (
        pytest.approx(middle),
        pytest.approx(math.exp(reach) * middle, rel=1e-3),
    )
    assert device_row(compare_runs(*runs[:2], make_reference())).case.p50_ms.high is None
    row = device_row(compare_runs(make_run(p50_ms=None, latencies_ms=[]), make_reference()))
    assert row.case.p50_ms is None
    assert set(row.decisions) == {"accuracy_value", "energy_gross_mj"}


def test_what_is_not_alike_is_left_out_with_the_difference():
    """Model, data, task, scenario and input size each have their own words."""
    for change, reason in (
        ({"data": OTHER_DATA}, "with the same data"),
        ({"model": "big-detector"}, "with the same model"),
        ({"task": "classification"}, "with the same task"),
        ({"scenario": "offline"}, "with the same scenario"),
        (
            {
                "inputs": (
                    record_conditions.Tensor(name="x", shape=(1, 3, 64, 64), dtype="float32"),
                )
            },
            "with the same input size",
        ),
    ):
        comparison = compare_runs(make_run(id="other", **change), make_run(), make_reference())
        assert [entry.run for entry in comparison.left_out] == ["other"], change
        assert reason in only_reason(comparison)


def test_quantisations_of_a_language_model_are_not_compared_by_speed():
    """A file of 4 bits is another model.

    Engine, threads, board and the layout of an input may differ.
    """
    device = {"precision": "q4_k_m", "generation": make_generation(), "ap": None}
    assert "with the same precision" in only_reason(
        compare_runs(make_run(**device), make_reference(**(device | {"precision": "f16"})))
    )
    alike = compare_runs(make_run(**device, threads=4), make_reference(**device, runtime="server"))
    assert "generation_ttft_p50_ms" in device_row(alike).decisions
    channels_last = (record_conditions.Tensor(name="x", shape=(1, 96, 96, 3), dtype="uint8"),)
    assert not compare_runs(make_run(inputs=channels_last), make_reference()).left_out


def test_another_rate_is_left_out():
    """Waiting times at another rate are other figures; offline each machine takes its own batch."""
    slow, fast = (record_figures.Load(samples=100, target_per_s=rate) for rate in (10.0, 50.0))
    comparison = compare_runs(
        make_run(scenario="poisson", load=slow), make_reference(scenario="poisson", load=fast)
    )
    assert "with the same rate" in only_reason(comparison)
    eight = (record_conditions.Tensor(name="images", shape=(8, 3, 96, 96), dtype="float32"),)
    assert device_row(
        compare_runs(
            make_run(scenario="offline"), make_reference(scenario="offline", batch=8, inputs=eight)
        )
    )


def test_an_invalid_run_is_left_out_with_the_reasons_of_its_verdict():
    """An invalid run is in no median; what the store could not read stays in the list."""
    verdict = violating("invalid", "throttled", "under-voltage")
    comparison = compare_runs(
        make_run(id="bad", verdict=verdict, p50_ms=99.0), make_run(p50_ms=10.0), make_reference()
    )
    assert comparison.left_out == (
        LeftOut("bad", "invalid: the processor was throttled; the supply voltage was too low"),
    )
    assert device_row(comparison).case.p50_ms.value == pytest.approx(10.0)
    unread = LeftOut("newer", "schema 2")
    assert compare(booked([make_run(), make_reference()], [unread]), "reference").left_out == (
        unread,
    )


def test_disturbed_runs_and_mixed_governors_stay_and_are_marked():
    """Each reason is given once, with the number of runs that it holds for."""
    disturbed = violating("disturbed", "under-voltage")
    row = device_row(
        compare_runs(
            make_run(verdict=disturbed),
            make_run(verdict=disturbed),
            make_run(),
            make_reference(verdict=disturbed),
        )
    )
    assert (row.case.verdict, row.case.disturbed) == ("disturbed", 2)
    assert row.case.violations == (
        (
            "disturbed: the supply voltage was too low (2 of 3 runs). Use a stronger supply and "
            "a shorter cable."
        ),
    )
    assert {"disturbed", "disturbed reference"} <= set(row.marks)
    mixed = [
        make_run(environment=make_environment(governor=governor))
        for governor in ("performance", "ondemand")
    ]
    assert "mixed conditions" in device_row(compare_runs(*mixed, make_reference())).marks
    assert (
        "mixed conditions"
        not in device_row(compare_runs(make_run(), make_run(), make_reference())).marks
    )


def test_a_latency_that_was_not_measured_never_ranks_beside_a_measured_one():
    """The whole run is left out, since its latency is what is compared.

    A latency without a provenance is not taken for a measured one.
    """
    for provenance, reason in (
        (
            {"latency": "published"},
            "latency: published, not measured, so it is not compared with measurements",
        ),
        ({}, "latency: the record does not state that it was measured"),
    ):
        with table_row(provenance):
            comparison = compare_runs(
                make_run(id="x", provenance=provenance), make_run(), make_reference()
            )
            assert comparison.left_out == (LeftOut("x", reason),)


def test_a_published_energy_is_left_out_and_the_rest_of_the_run_is_compared():
    """The row has no energy, ratio or mark of one; the list names the run."""
    comparison = compare_runs(
        make_run(id="x", provenance={"latency": "measured", "energy": "published"}),
        make_reference(),
    )
    case = device_row(comparison).case
    assert case.energy is None
    why = "energy: published, not measured, so it is not compared with measurements"
    assert case.energy_reason == why
    assert comparison.left_out == (LeftOut("x", why),)
    assert value_of(device_row(comparison), "energy_gross_mj") is None
    assert case.p50_ms.value == pytest.approx(10.0)


def test_a_run_read_twice_counts_once_and_a_lone_reference_is_left_out():
    """A board's file and the ledger may hold the same run.

    A server that measured a hundred models does not fill the table of two.
    """
    run = make_run(id="twice")
    comparison = compare_runs(run, run, make_reference())
    assert comparison.left_out == (LeftOut("twice", "the same run was read twice"),)
    assert len(device_row(comparison).case.runs) == 1
    comparison = compare_runs(
        make_run(), make_reference(), make_reference(id="alone", model="another", sha256="c3" * 32)
    )
    assert comparison.left_out == (LeftOut("alone", "no device run matches this reference run"),)


def test_int8_is_compared_with_the_fp32_reference_when_no_int8_reference_exists():
    """The row says that it was compared with fp32, and why.

    Where there is an int8 reference, it is taken.
    """
    row = device_row(
        compare_runs(
            make_run(precision="int8", runtime="litert"),
            make_reference(),
            make_reference(precision="fp16", sha256="b2" * 32),
        )
    )
    assert (row.reference.key.precision, row.reference.key.runtime) == ("fp32", "onnx")
    assert (
        row.choice
        == "the highest precision there is (fp32 on onnx): the reference has no int8 on litert"
    )
    assert {"other precision", "other class of precision", "other runtime"} <= set(row.marks)
    assert "latency_p50_ms" in row.decisions
    runs = [
        make_run(precision="int8"),
        make_reference(),
        make_reference(precision="int8", sha256="b2" * 32, p50_ms=1.0),
    ]
    row = device_row(compare_runs(*runs))
    assert (row.reference.key.precision, row.choice) == ("int8", "same precision and runtime")
    assert value_of(row, "latency_p50_ms") == pytest.approx(10)


def test_an_ok_reference_is_preferred_to_a_faster_disturbed_one():
    """The trustworthy reference of equal kinds is taken, and the row says there were several."""
    disturbed = violating("disturbed", "busy-machine")
    row = device_row(
        compare_runs(
            make_run(),
            make_reference(threads=8, p50_ms=1.0, verdict=disturbed),
            make_reference(threads=4),
        )
    )
    assert row.reference.key.threads == 4
    assert (
        row.choice == "same precision and runtime; the first of 2 such by verdict, settings and p50"
    )


def test_energies_of_one_scope_are_divided_and_those_of_two_never():
    """Meters that leave out different parts are marked.

    A board's input and a wall socket have no ratio.
    """
    for device, reference, ratio, marks in (
        ({"gross_mj": 125.0}, {}, 2.0, set()),
        ({"excludes": ("USB",)}, {}, 1.0, {"other energy coverage"}),
        ({}, {"scope": "wall-ac"}, None, {"other energy scope"}),
    ):
        with table_row(device, reference):
            row = device_row(
                compare_runs(
                    make_run(energy=make_energy(**device)),
                    make_reference(energy=make_energy(**reference)),
                )
            )
            assert value_of(row, "energy_gross_mj") == (ratio and pytest.approx(ratio))
            assert {"other energy scope", "other energy coverage"} & set(row.marks) == marks


def test_what_one_run_does_not_know_its_case_does_not_know():
    """A net energy of three runs is not the net energy of four, and unknown is not zero.

    A case without energy gives the reason of its newest run.
    """
    runs = [make_run(), make_run(energy=make_energy(net_mj=None, net_u_mj=None))]
    case = device_row(compare_runs(*runs, make_reference())).case
    assert "energy_net_mj" not in case.figures
    assert case.net_state == "not_resolvable"
    assert case.figures["energy_gross_mj"].runs == 2
    runs = [
        make_run(energy=make_energy(gross_u_mj=3.0)),
        make_run(energy=make_energy(gross_u_mj=1.0)),
    ]
    assert (
        device_row(compare_runs(*runs, make_reference())).case.figures["energy_gross_mj"].u == 3.0
    )
    runs.append(make_run(energy=make_energy(gross_u_mj=None)))
    assert (
        device_row(compare_runs(*runs, make_reference())).case.figures["energy_gross_mj"].u is None
    )
    runs = [
        make_run(**no_energy("no sensor")),
        make_run(**no_energy("no sensor")),
        make_run(**no_energy("the meter fell silent")),
    ]
    assert (
        device_row(compare_runs(*runs, make_reference())).case.energy_reason
        == "the meter fell silent"
    )


def test_energies_of_two_meters_are_not_merged_into_one_case():
    """The newest run's meter counts; the other runs' energy is listed."""
    old = make_run(id="old", started_at_ns=1, energy=make_energy(sensor="pmic", scope="soc-rails"))
    comparison = compare_runs(old, make_run(started_at_ns=2), make_reference())
    case = device_row(comparison).case
    assert (case.energy.scope, case.figures["energy_gross_mj"].runs) == ("board-input", 1)
    assert [entry.run for entry in comparison.left_out] == ["old"]
    assert "soc-rails" in only_reason(comparison)


def test_less_than_three_percent_is_no_practical_difference():
    """Runs that agree show no difference within 3% either way.

    Means within 3% say nothing if their interval reaches farther, or there is none.
    """
    for p50_ms, outcome in (
        (2.05, "no difference"),
        (2.07, "worse"),
        (1.95, "no difference"),
        (1.93, "better"),
    ):
        with table_row(p50_ms):
            runs = day_by_day(
                [make_run(p50_ms=p50_ms) for _ in range(5)], [make_reference() for _ in range(5)]
            )
            assert device_row(compare_runs(*runs)).decisions["latency_p50_ms"].outcome == outcome
    for runs in ([9.0, 10.0, 11.0, 10.0, 10.0], [10.0]):
        with table_row(runs):
            result = device_row(
                compare_runs(
                    *(make_run(p50_ms=value) for value in runs),
                    *(make_reference(p50_ms=10.0) for _ in range(5)),
                )
            )
            assert result.decisions["latency_p50_ms"].outcome == "inconclusive"


def test_what_was_replayed_stands_beside_its_like_only():
    """A replayed recording is no measurement.

    It is compared with a replayed reference, and left out beside a measured one.
    """
    replayed = {"latency": "replayed", "energy": "replayed"}
    assert "no reference with the same provenance: this is replayed" in only_reason(
        compare_runs(make_run(provenance=replayed), make_run(), make_reference())
    )
    row = device_row(
        compare_runs(make_run(provenance=replayed), make_reference(provenance=replayed))
    )
    assert "replayed" in row.marks
    assert value_of(row, "energy_gross_mj") == pytest.approx(1.0)


def test_accuracies_of_two_protocols_are_not_compared():
    """The metric's name is the same, but two rules for the answers make two figures."""
    sides = [
        make_accuracy(metric="exact_match", value=value, normalisation=rule)
        for value, rule in ((0.1, "squad"), (0.2, "number"))
    ]
    reference, other = make_reference(accuracy=sides[0]), make_run(accuracy=sides[1])
    (row,) = [row for row in compare_runs(reference, other).rows if not row.is_reference]
    assert "accuracy_value" not in row.decisions
    assert subject_of(reference).accuracy_kind != subject_of(other).accuracy_kind
    (row,) = [
        row
        for row in compare_runs(reference, make_run(accuracy=sides[0])).rows
        if not row.is_reference
    ]
    assert row.decisions["accuracy_value"].value == 0
