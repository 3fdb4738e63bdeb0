"""Facts about the lines of `make bench`."""

from tests.benchmarks import energy, sensor_worlds
from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.comparison import ROOT, Line, at_least, at_most, compared_pairs, figure, size_within


def verdict(goal, *ratios):
    """Return what becomes of a goal after ten pairs that have these ratios in turn."""
    return compared_pairs(Line("n", "ms", "p", goal), [(ratio, 1.0) for ratio in ratios * (10 // len(ratios))]).verdict


def test_a_goal_is_met_or_missed_where_the_interval_decides():
    """1% above misses a goal of 0.2% and meets one of 2%; where the goal lies within the interval, or that is too wide, nothing is sure."""
    assert [verdict(at_most(limit), 1.01) for limit in (1.002, 1.02)] == ["missed", "met"]
    assert verdict(at_most(1.01), 1.0, 1.02) == "not sure"
    assert [verdict(at_most(1.1, reach), 1.0, 1.02) for reach in (0.001, 0.1)] == ["not sure", "met"]
    assert [verdict(at_least(limit), 1.0, 1.02) for limit in (0.9, 1.1)] == ["met", "missed"]
    assert verdict(None, 1.0, 1.02) == ""


def test_all_lines_have_fifteen_minutes_together():
    """The shares of the parts that run by default."""
    assert sum(part.takes_s for part in PARTS.values() if not part.is_long) <= 15 * 60


def test_only_a_size_is_judged_by_a_limit_of_its_own():
    """Memory is met up to its limit; a time without a peer is printed and not judged."""
    assert [size_within("n", size_mb, 25.0).verdict for size_mb in (25.0, 25.1)] == ["met", "missed"]
    assert (figure("n", "s", 3.0).met, figure("n", "s", 3.0).verdict) == (None, "")


def test_the_environment_of_make_bench_has_what_its_parts_need():
    """The pinned requirements name the packages without which a default part, or a line of it, is left out."""
    pins = "\n" + (ROOT / "requirements" / "dev.txt").read_text()
    packages = ["ai-edge-litert", "gguf", "mlcommons-loadgen", "opencv-python-headless", "pycocotools", "xllamacpp"]
    assert [name for name in packages if f"\n{name}==" not in pins] == []


def test_the_energy_benchmark_prints_errors_coverage_and_rivals():
    """A few trials of one case: our error is below each rival's, and the lines hold its goals."""
    case = next(case for case in energy.CASES if case.name == "30 fps, 10 Hz")
    result = energy.judged(case, trials=6)
    assert (result["trials"], result["refused"], result["window_suffices"]) == (6, 0, True)
    assert result["mean_error_ratio"] < 0.01 < min(result["rivals_mean_error_ratio"].values())
    lines = list(energy.lines(result))
    assert [line.unit for line in lines] == ["of the energy", "of the runs", "of the runs"]
    assert lines[0].met


def test_a_cell_of_the_grid_has_a_line_for_gross_and_net():
    """A cell below 93% misses its goal, and so does one above 97%; a cell that is refused throughout has no line."""
    cell = {"cell": "10 Hz", "trials": 100, "refused": 3, "gross": 0.95, "net": 1.0}
    assert [line.met for line in sensor_worlds.lines(cell)] == [True, False]
    assert list(sensor_worlds.lines(cell | {"gross": None, "net": None})) == []
