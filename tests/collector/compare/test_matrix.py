import pytest

from edgemeter.agent.contract import record_conditions
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.collector.compare import views
from edgemeter.collector.compare.matrix import coverage, matrix
from edgemeter.collector.compare.summary import summaries_of
from edgemeter.collector.compare.trade_off import pareto_front, trade_offs
from edgemeter.collector.runs.cases import group_cases
from edgemeter.collector.runs.store import StoreContents
from tests.fixtures.comparison_factory import make_reference, make_run, no_energy
from tests.fixtures.record_factory import STARTED_AT_NS, make_energy, make_environment, make_generation
from tests.fixtures.rows import table_row

DAY_NS = 86_400 * 10**9
NOW_NS = STARTED_AT_NS + DAY_NS


def matrix_of(*runs, figure="latency", across="device", now_ns=NOW_NS):
    """Return the matrix of `runs`."""
    gathered = views.gather(StoreContents(runs))
    return matrix(gathered.summaries, figure, now_ns, across, refused=gathered.refused)


def cell(of_runs, column, model="tiny-detector"):
    """Return the one cell of a model in a column."""
    (only,) = [cell for (row, name), cell in of_runs.cells.items() if name == column and row.model == model]
    return only


def test_a_cell_holds_the_best_sound_case():
    """A faster case that is suspect gives way to one to believe; the best of a row is marked, by its figure the lowest or highest."""
    suspect = record_conditions.Verdict(state="suspect", reasons=("drift: x",))
    runs = [make_run(threads=1, p50_ms=10.0), make_run(threads=4, p50_ms=5.0, verdict=suspect), make_reference()]
    result = matrix_of(*runs)
    assert (cell(result, "pi-1").figure.median, cell(result, "pi-1").is_best) == (10.0, False)
    assert (cell(result, "server-1").figure.median, cell(result, "server-1").is_best) == (2.0, True)
    runs = [make_run(throughput_per_s=10.0, ap=0.58), make_reference(throughput_per_s=20.0, ap=0.6)]
    assert cell(matrix_of(*runs, figure="throughput"), "server-1").is_best
    assert cell(matrix_of(*runs, figure="accuracy"), "server-1").is_best


def test_classes_of_precision_are_rows_and_power_modes_columns():
    """int8 does not compete with fp32, bf16 and fp16 do; a mode is another machine; two kinds of 4 bits are rows of language models."""
    result = matrix_of(
        *[make_run(precision=precision, sha256=f"{index:02x}" * 32) for index, precision in enumerate(("fp32", "int8", "fp16", "bf16"))]
    )
    assert [row.precision_class for row in result.rows] == ["8-bit integer", "full", "half"]
    runs = [make_run(environment=make_environment(power_mode=mode)) for mode in ("15W", "MAXN")]
    assert matrix_of(*runs).columns == ("pi-1 (15W)", "pi-1 (MAXN)")
    runs = [make_run(precision=precision, task="generation", generation=make_generation(), ap=None) for precision in ("int4", "fp4")]
    assert [row.precision_class for row in matrix_of(*runs).rows] == ["fp4", "int4"]
    assert (
        len(matrix_of(*[make_run(precision=precision, sha256=f"{index:02x}" * 32) for index, precision in enumerate(("int4", "fp4"))]).rows)
        == 1
    )


def test_energies_of_different_scopes_are_never_best_of_one_another():
    """A lower figure of a narrower scope wins nothing."""
    runs = [
        make_run(energy=make_energy(scope="soc-rails", gross_mj=1.0)),
        make_reference(energy=make_energy(scope="wall-ac", gross_mj=9.0)),
    ]
    result = matrix_of(*runs, figure="energy")
    assert not any(measured.is_best for measured in result.cells.values())
    assert {str(measured.energy) for measured in result.cells.values()} == {"soc-rails", "wall-ac"}


def test_what_was_never_measured_is_stale_or_unusable_is_distinguished():
    """Each with its reason; the coverage counts them."""
    invalid = record_conditions.Verdict(state="invalid", reasons=("throttled: hot",))
    runs = [
        make_run(),
        make_run("pi-2", model="other"),
        make_run("pi-3", verdict=invalid),
        make_reference(started_at_ns=STARTED_AT_NS - 90 * DAY_NS),
        make_run("pi-4", precision="int8", ap=0.1),
    ]
    result = matrix_of(*runs)
    covered = coverage(result)
    assert cell(result, "pi-1", "other").state == "never measured"
    states = {(gap.column, gap.state) for gap in covered.gaps}
    assert {("pi-3", "unusable"), ("server-1", "stale"), ("pi-4", "below accuracy gate"), ("pi-2", "never measured")} <= states
    (unusable,) = [gap for gap in covered.gaps if gap.state == "unusable"]
    assert unusable.reason == "invalid: throttled: hot"
    assert covered.cells == sum(covered.states.values()) == len(result.rows) * len(result.columns)


def test_a_board_type_is_over_all_its_devices():
    """Three boards are three members, not nine runs; a case without energy says why."""
    runs = [make_run(f"pi-{device}", p50_ms=10.0 + device, **no_energy()) for device in range(3) for _ in range(3)]
    of_board = cell(matrix_of(*runs, across="board"), "Raspberry Pi 5 Model B Rev 1.0")
    assert (of_board.devices, of_board.figure.median) == (3, 11.0)
    assert (of_board.figure.interval.level, of_board.figure.interval.members) == ("device", 3)
    without = cell(matrix_of(*runs, figure="energy", across="board"), "Raspberry Pi 5 Model B Rev 1.0")
    assert (without.state, without.reason) == ("no figure", "no power sensor here")


def test_the_front_holds_what_nothing_beats_and_names_what_beats_the_rest():
    """Models compete on the same images; the cheapest better one beats a slower one; energies of two scopes are two fronts."""
    runs = [
        make_run(model="quick", p50_ms=5.0, ap=0.4),
        make_run(model="good", p50_ms=20.0, ap=0.6),
        make_run(model="worse", p50_ms=25.0, ap=0.5),
        make_run(model="blind", ap=None),
    ]
    (trade_off,), absent = trade_offs(views.gather(StoreContents(runs)).summaries, "latency")
    assert [(point.case.key.model, point.beaten_by.key.model if point.beaten_by else None) for point in trade_off.places] == [
        ("quick", None),
        ("good", None),
        ("worse", "good"),
    ]
    assert [(case.case.key.model, case.reason) for case in absent] == [("blind", "no accuracy: no ground truth")]
    runs = [make_run(), make_run("pi-2", energy=make_energy(scope="wall-ac"))]
    for cost, stages in (("latency", 1), ("energy", 2)):
        by_class, _ = trade_offs(views.gather(StoreContents(runs)).summaries, cost)
        assert len(by_class) == stages, cost


def test_a_ruined_file_has_no_place_on_the_front():
    """A model that lost most of its accuracy is not ranked, however fast it is."""
    by_class, absent = trade_offs(
        views.gather(StoreContents([make_run(), make_run(precision="int8", p50_ms=1.0, ap=0.2)])).summaries, "latency"
    )
    assert [point.case.key.precision for point in by_class[0].places] == ["fp32"]
    assert "is not ranked" in absent[0].reason


def test_a_stored_energy_at_or_below_zero_is_neither_best_nor_on_a_front():
    """An older agent gave one to a reversed clamp: whatever shows a best names it as left out instead."""
    for gross_mj in (-30_660.0, 0.0):
        with table_row(gross_mj):
            impossible = make_energy(gross_mj=gross_mj, mean_power_w=gross_mj / 10_000, net_mj=None, net_state="not_resolvable")
            runs = [make_run(energy=impossible), make_run("pi-2", energy=make_energy(gross_mj=80.0))]
            result = matrix_of(*runs, figure="energy")
            assert [(measured.figure.median, measured.is_best) for measured in result.cells.values() if measured.figure] == [(80.0, False)]
            fronts, absent = trade_offs(views.gather(StoreContents(runs)).summaries, "energy")
            assert [point.case.key.device for front in fronts for point in front.places] == ["pi-2"]
            assert [case.case.key.device for case in absent] == ["pi-1"]
            assert "is no energy: a reversed clamp or shunt" in absent[0].reason


def test_a_slow_down_has_the_centre_of_the_table_of_runs():
    """1.6495 in one round and 0.8246 in the other are 1.1663 times (the root of their product), not 1.2371."""
    ssd = Neighbour(model="ssd", sha256="c3" * 32, runtime="onnx", threads=1)
    runs = [
        make_run(repeat=repeat, together=Together(neighbours=(ssd,), overlap_ms=1000.0, slow_down_ratio=ratio))
        for repeat, ratio in enumerate((1.6495, 0.8246))
    ]
    (summary,) = summaries_of(group_cases(runs)[0])
    assert summary.spreads["together_slow_down_ratio"].median == pytest.approx(1.1663, abs=1e-4)


def test_of_equal_points_all_stay_on_the_front_cheapest_first():
    """(4, 0.5) is beaten by (2, 0.6); of equal cost the more accurate stays, and of equal accuracy the cheaper; equal points all stay."""
    for points, front in (
        ([(4.0, 0.5), (2.0, 0.6), (8.0, 0.7), (1.0, 0.3), (9.0, 0.7)], [3, 1, 2]),
        ([(1.0, 0.5), (1.0, 0.6), (2.0, 0.6)], [1]),
        ([(1.0, 0.5), (1.0, 0.5)], [0, 1]),
        ([], []),
    ):
        with table_row(points):
            assert pareto_front(points) == front
