from edgemeter.agent.contract import record_conditions
from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.compare.judgement import SmallestDifferences
from edgemeter.collector.runs.store import StoreContents
from edgemeter.collector.show import conclusions
from tests.fixtures.comparison_factory import OTHER_DATA, compare_runs, day_by_day, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_energy
from tests.fixtures.rows import table_row


def output(*runs):
    """Return the whole answer to the comparison of `runs`."""
    return " ".join(conclusions.conclusions(compare_runs(*runs)))


def test_the_summary_names_the_fastest_case_its_ratio_and_what_it_is_to():
    """Each sentence has its figures: latency, ratio, accuracy, and the most accurate case."""
    text = output(make_run(p50_ms=20.0), make_run(precision="int8", runtime="litert", p50_ms=8.0, ap=0.58), make_reference())
    assert "pi-1 runs tiny-detector in 8.00 ms at best (p50, int8 on litert 1.22.1)" in text
    assert "4.0 times as long as the reference (fp32 on onnx 1.22.1, server-1), not judged: int8 against fp32." in text
    assert "Its AP is 0.580 against 0.600 of the reference (not judged)." in text
    assert "The most accurate case, fp32 on onnx 1.22.1, reaches 0.600 in 20.0 ms." in text


def test_a_latency_is_worded_as_it_was_judged():
    """No more certain than its interval, and by the difference that the reader set as one that matters."""
    for p50_ms, matters_ratio, words in (
        (9.76, 0.03, "4.9 times as long as the reference"),
        (1.0, 0.03, "2.0 times as fast as the reference"),
        (2.04, 0.03, "as fast as the reference within 3%"),
        (2.06, 0.03, "1.03 times as long as the reference, perhaps by less than the 3% that matter"),
        (2.12, 0.1, "as fast as the reference within 10%"),
        (None, 0.03, "with no ratio to the reference"),
    ):
        with table_row(p50_ms, matters_ratio):
            factors = (0.999, 1.0, 1.001)
            runs = day_by_day(
                [make_run(p50_ms=p50_ms and p50_ms * factor) for factor in factors],
                [make_reference(p50_ms=2.0 * factor) for factor in factors],
            )
            row = compare(StoreContents(runs), "reference", SmallestDifferences(ratio=matters_ratio)).rows[-1]
            assert conclusions.speed(row) == words


def test_energy_is_worded_with_scope_uncertainty_and_only_like_with_like():
    """Another scope is named, and no ratio is made of it."""
    device = make_run(energy=make_energy(gross_mj=125.0, gross_u_mj=3.0))
    same, other = make_reference(), make_reference(energy=make_energy(scope="wall-ac"))
    assert (
        "An inference costs 125.0 ± 3.0 mJ gross (board-input), 30.0 ± 2.0 mJ net of idle; "
        "gross that is 2.0 times the reference's (not judged)." in output(device, same)
    )
    assert "the reference's is of another scope or provenance (wall-ac), so the two are not compared" in output(device, other)
    assert "the reference's energy was not measured" in output(device, make_reference(**no_energy()))


def test_a_missing_energy_is_reported_with_the_reason():
    """Where no sensor is, the summary states that in place of a number."""
    assert "Its energy was not measured: no power sensor here." in output(make_run(**no_energy()), make_reference())


def test_a_suspect_figure_is_called_suspect_in_the_same_breath():
    """And counted among the cautions."""
    suspect = record_conditions.Verdict(state="suspect", reasons=("drift: x",))
    comparison = compare_runs(make_run(verdict=suspect), make_reference())
    assert "Suspect: this figure." in " ".join(conclusions.conclusions(comparison))
    assert "Suspect: this figure and the reference's." in output(make_run(verdict=suspect), make_reference(verdict=suspect))
    assert "1 of 2 cases is suspect" in " ".join(conclusions.cautions(comparison))


def test_cautions_name_single_runs_and_what_was_left_out():
    """A reader sees what the figures rest on before seeing them."""
    once = " ".join(conclusions.cautions(compare_runs(make_run(), make_run(data=OTHER_DATA), make_reference())))
    assert "measured once" in once
    assert "Left out, with the reason below: 1 run." in once
    assert "median over 2 to 3 runs" in " ".join(
        conclusions.cautions(compare_runs(*[make_run() for _ in range(3)], make_reference(), make_reference()))
    )


def test_several_devices_are_summarised_by_the_nearest_and_the_farthest():
    """One sentence each; the cards and the table have the rest."""
    runs = [make_run(), make_run(device="pi-2", p50_ms=40.0, **no_energy()), make_reference()]
    text = output(*runs)
    assert "Nearest to the reference, or ahead of it, comes pi-1" in text
    assert "Farthest from it is pi-2 with tiny-detector, fp32 on onnx 1.22.1: 40.0 ms (p50), 20 times as long as the reference, " in text
    assert "not judged: 2 runs too few (1 against 1; an interval takes 3 each)" in text
    assert "Energy was not measured on pi-2." in text


def test_nothing_compared_is_reported():
    """With the place where the reasons stand."""
    assert "No device case matches a reference case" in output(make_reference())
    assert conclusions.title(compare_runs(make_reference())) == "server-1: nothing to compare with yet"


def test_the_title_names_model_device_and_reference():
    """And counts where there are many."""
    assert conclusions.title(compare_runs(make_run(), make_reference())) == "tiny-detector on pi-1, against server-1"
    same = compare_runs(make_run(device="server-1"), make_reference())
    assert conclusions.title(same) == "tiny-detector on server-1"
    many = [make_run(device=f"pi-{index}", model=model) for index in range(6) for model in ("a", "b")]
    references = [make_reference(model=model) for model in ("a", "b")]
    assert conclusions.title(compare_runs(*many, *references)) == "2 models on pi-0, pi-1, pi-2 and 3 more, against server-1"


def test_medians_that_are_close_are_not_called_equal_where_the_runs_do_not_show_it():
    """The headline claims no more than the judgement: its interval reaches far beyond 3%."""
    runs = [make_run(p50_ms=value) for value in (9.0, 10.0, 11.0, 10.0, 10.0)]
    text = output(*day_by_day(runs, [make_reference(p50_ms=10.0) for _ in runs]))
    assert "not settled against the reference (fp32 on onnx 1.22.1, server-1) by these runs" in text
    assert "within 3%" not in text
