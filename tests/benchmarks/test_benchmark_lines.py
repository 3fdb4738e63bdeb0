"""Facts about the lines of `make bench`."""

from contextlib import nullcontext
from itertools import count

import pytest

from edgemeter.agent.base.errors import UnavailableError
from tests.benchmarks import clusters, energy, sensor_worlds, served
from tests.benchmarks.comparison import LeftOutError, as_rows, at_least, at_most, figure, interleaved, size_within
from tests.fixtures.real_mlserver import RealMlServer


def test_a_ratio_is_that_of_neighbours_though_the_machine_drifts():
    """Both slow down by half over the session; ours takes 1% longer, and the interval is narrow around that."""
    moments = count()

    def figure(times):
        return times * (1 + 0.5 * next(moments) / 40)

    paired = interleaved(lambda: figure(1.01), lambda: figure(1.0), 20)
    assert paired.ratio == pytest.approx(1.01, abs=0.003)
    assert paired.low < 1.01 < paired.high
    assert paired.high - paired.low < 0.02


def test_a_goal_is_missed_by_the_ratio_itself():
    """1% above misses a goal of 0.2% and meets one of 2%; where the goal lies within the interval, nothing is sure."""
    paired = interleaved(lambda: 1.01, lambda: 1.0, 10)
    assert [at_most("n", "ms", "p", paired, limit).met for limit in (1.002, 1.02)] == [False, True]
    assert all(at_most("n", "ms", "p", paired, limit).is_sure for limit in (1.002, 1.02))
    wide = interleaved(iter([1.0, 1.02] * 5).__next__, lambda: 1.0, 10)
    assert at_most("n", "ms", "p", wide, 1.01).verdict == "not sure"
    assert [at_least("n", "1/s", "p", paired, limit).verdict for limit in (1.0, 1.02)] == ["met", "missed"]


def test_only_a_size_is_judged_by_a_limit_of_its_own():
    """Memory is met up to its limit; a time without a peer is printed and not judged."""
    assert [size_within("n", size_mb, 25.0).verdict for size_mb in (25.0, 25.1)] == ["met", "missed"]
    assert (figure("n", "s", 3.0).met, figure("n", "s", 3.0).verdict) == (None, "")


def test_pairs_end_with_their_time_but_not_before_the_fourth():
    """No time at all leaves four pairs, which have an interval."""
    assert len(interleaved(lambda: 1.0, lambda: 1.0, 100, seconds=0).pairs) == 4
    assert len(interleaved(lambda: 1.0, lambda: 1.0, 7, seconds=60).pairs) == 7


def test_a_row_has_what_the_results_file_promises():
    """Name, unit, both values, ratio, goal and machine stand in every row."""
    (row,) = as_rows([size_within("n", 10.0, 50.0)])
    assert {"name", "unit", "ours", "peer", "peer_value", "ratio", "goal", "machine"} <= set(row)
    assert row["ratio"] == pytest.approx(0.2)


@pytest.mark.parametrize("has_mlserver", [True, False])
def test_a_form_that_cannot_be_measured_is_left_out_with_its_reason(monkeypatch, has_mlserver):
    """Behind what was measured: without grpc that form alone, without MLServer's start the two that it serves."""

    def mlserver(*_):
        if has_mlserver:
            return nullcontext(RealMlServer("http", "grpc"))
        raise RuntimeError("MLServer did not start")

    def compared(_, __, form, *___):
        if form == "grpc":
            raise UnavailableError("grpc is not installed")
        yield form

    monkeypatch.setattr(served.requirements, "mlserver_python", lambda: "python")
    monkeypatch.setattr(served.requirements, "triton_python", lambda: None)
    monkeypatch.setattr(served, "real_mlserver", mlserver)
    monkeypatch.setattr(served, "_test_server", lambda _: nullcontext("http"))
    monkeypatch.setattr(served, "compared", compared)
    forms, parts = [], served.comparisons()
    with pytest.raises(LeftOutError) as reason:
        forms.extend(parts)
    assert forms == (["json", "binary"] if has_mlserver else ["binary"]) * 2
    assert str(reason.value) == (
        "grpc of MLServer: grpc is not installed" if has_mlserver else "json and grpc of MLServer: MLServer did not start"
    )


def test_the_energy_benchmark_prints_errors_coverage_and_rivals():
    """A few trials of one case: our error is below each rival's, and the lines hold its goals."""
    case = next(case for case in energy.CASES if case.name == "30 fps, 10 Hz")
    result = energy.judged(case, trials=20)
    assert (result["trials"], result["refused"], result["window_suffices"]) == (20, 0, True)
    assert result["mean_error_ratio"] < 0.01 < min(result["rivals_mean_error_ratio"].values())
    lines = list(energy.lines(result))
    assert [line.unit for line in lines] == ["of the energy", "of the runs", "of the runs"]
    assert lines[0].met


def test_a_cell_of_the_grid_has_a_line_for_gross_and_net():
    """A cell below 93% misses its goal, and so does one above 97%; a cell that is refused throughout has no line."""
    cell = {"cell": "10 Hz", "trials": 100, "refused": 3, "gross": 0.95, "net": 1.0}
    assert [line.met for line in sensor_worlds.lines(cell)] == [True, False]
    assert list(sensor_worlds.lines(cell | {"gross": None, "net": None})) == []


def test_the_grid_names_each_cell_once():
    """Rates, lags, clocks, shares, rhythms, lengths and what happens to readings."""
    names = [name for name, _ in sensor_worlds.grid()]
    assert len(set(names)) == len(names) > 90


def test_the_benchmark_of_clusters_prints_coverage_before_and_after():
    """A few draws of one world of videos: bounds over single frames are narrow and miss, those over videos hold."""
    world = next(world for world in clusters.grid() if world.name == "top-1 .8, 10 videos of 10, ICC 0.5")
    line = clusters.judged(world, 30)
    assert (line["draws"], line["refused"], line["truth"]) == (30, 0, 0.8)
    assert line["before"] < 0.75
    assert line["after"] > 0.85
    assert line["before_width_ratio"] < 0.6 < line["after_width_ratio"] < 1.6
