"""One measured energy of 80 mJ beside one of 20 mJ that nobody measured: in no view does the lower one win, or count, against it."""

from edgemeter.agent.contract.energy_provenance import energy_provenance, sensor_provenance
from edgemeter.collector.alerts.check import check_alerts
from edgemeter.collector.alerts.rules import AlertRule, AlertRules
from edgemeter.collector.compare import views
from edgemeter.collector.compare.columns import flat
from edgemeter.collector.compare.matrix import matrix
from edgemeter.collector.compare.trade_off import trade_offs
from edgemeter.collector.datacenter.sides import SideRequest, choose_sides
from edgemeter.collector.review import gate
from edgemeter.collector.review.document import to_markdown
from edgemeter.collector.review.review import review
from edgemeter.collector.runs.cases import EnergyClass
from edgemeter.collector.runs.store import StoreContents
from edgemeter.collector.show.comparison_charts import energy_front
from edgemeter.collector.show.series_style import assign_styles
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.watch_file import WatchFile
from edgemeter.collector.units.odd_boards import board_types
from edgemeter.collector.web import queries, side_by_side
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.series import FOLLOWED, series
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run
from tests.fixtures.record_factory import STARTED_AT_NS, make_energy
from tests.fixtures.review_runs import make_side
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy
from tests.fixtures.served_page import view_context

# How an energy of 20 mJ came about, and what its record states of it: the last one states too much.
UNMEASURED = {
    "replayed": ({"sensor": "replay:demo"}, "replayed"),
    "estimated": ({"sensor": "estimate"}, "estimated"),
    "replayed, stated as measured": ({"sensor": "replay"}, "measured"),
}


def unmeasured(kind, gross_mj=20.0):
    """Return the fields of a run with an energy of that kind."""
    sensor, provenance = UNMEASURED[kind]
    energy = make_energy(gross_mj=gross_mj, net_mj=gross_mj / 2, **sensor)
    return {"energy": energy, "provenance": {"latency": "measured", "energy": provenance, "accuracy": "measured"}}


def measured(gross_mj=80.0):
    """Return the fields of a run whose energy was measured."""
    return {"energy": make_energy(gross_mj=gross_mj, net_mj=gross_mj / 2)}


def test_the_provenance_is_worked_out_from_what_the_record_has():
    """A sensor that replays, estimates or models is believed before what the record states."""
    assert sensor_provenance("ina219", "measured") == "measured"
    assert sensor_provenance("replay:x", "measured") == "replayed"
    assert sensor_provenance("estimate", "measured") == "estimated"
    assert sensor_provenance("ina219", None) is None
    replayed = make_run(energy=make_energy(sensor="replay"), provenance={"latency": "measured", "energy": "replayed"})
    assert energy_provenance(replayed, make_energy()) == "measured", "what is stated of the first sensor is not true of one beside it"
    assert energy_provenance(make_run(energy=None)) is None


def test_a_class_of_energy_names_its_provenance_where_it_was_not_measured():
    """Those of one scope and provenance rank together; measured ones lead, then the widest scope."""
    wall, replayed, board = EnergyClass("wall-ac", "measured"), EnergyClass("wall-ac", "replayed"), EnergyClass("board-input", "measured")
    assert (str(wall), str(replayed)) == ("wall-ac", "wall-ac, replayed")
    assert sorted([replayed, board, wall], key=lambda energy_class: energy_class.preference) == [wall, board, replayed]


def test_the_table_has_no_ratio_of_them():
    """Neither in JSON and CSV nor as a verdict in words."""
    for kind in UNMEASURED:
        with table_row(kind):
            comparison = compare_runs(*(make_run(**unmeasured(kind)) for _ in range(3)), *(make_reference(**measured()) for _ in range(3)))
            (result,) = [result for result in comparison.rows if not result.is_reference]
            ratios = result.ratios.values
            assert (ratios.get("energy"), ratios.get("energy-net"), result.judgements["energy"]) == (None, None, None)
            columns = flat(result)
            assert columns["energy_gross_ratio"] is None
            assert columns["energy_provenance"] in (None, "replayed")


def test_a_case_takes_its_energy_from_runs_of_one_provenance():
    """The newest run decides, and the label is that of the runs that the figure is of."""
    for kind in UNMEASURED:
        with table_row(kind):
            older, newer = ({"started_at_ns": STARTED_AT_NS + day * DAY_NS} for day in (0, 1))
            (case,) = views.gather(StoreContents([make_run(**unmeasured(kind), **older), make_run(**measured(), **newer)])).summaries
            assert (case.gross_mj.median, case.gross_mj.n, case.energy.provenance) == (80.0, 1, "measured")
            (case,) = views.gather(StoreContents([make_run(**measured(), **older), make_run(**unmeasured(kind), **newer)])).summaries
            assert (case.gross_mj.median, case.energy.provenance) in ((20.0, "replayed"), (80.0, "measured"))


def test_the_matrix_stars_no_other():
    """The best of two measured ones is starred; one that was not measured is none, and in a cell it gives way to a measured one."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [make_run("pi-1", **measured(80.0)), make_run("pi-2", **measured(90.0)), make_run("pi-3", **unmeasured(kind))]
            runs += [make_run("pi-4", threads=1, **measured(95.0)), make_run("pi-4", threads=4, **unmeasured(kind))]
            for across in ("device", "board"):
                result = matrix(views.gather(StoreContents(runs)).summaries, "energy", STARTED_AT_NS, across)
                by_energy = {cell.figure.median: cell for cell in result.cells.values() if cell.figure}
                assert not (20.0 in by_energy and by_energy[20.0].is_best)
                if across == "device":
                    assert by_energy[80.0].is_best
                    assert result.cells[result.rows[0], "pi-4"].figure.median == 95.0
                    (best,) = [row for row in views.matrix_rows(result) if row["value"] == 80.0]
                    assert (best["energy_scope"], best["energy_provenance"]) == ("board-input", "measured")


def test_no_front_holds_both():
    """What was measured is beaten by what was measured only, on the terminal and on the report's charts."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [
                make_run("pi-1", ap=0.57, **measured()),
                make_run("pi-2", ap=0.6, **unmeasured(kind)),
                make_reference(ap=0.6, **measured(100.0)),
            ]
            fronts, _ = trade_offs(views.gather(StoreContents(runs)).summaries, "energy")
            front = {
                point.case.key.device: point.beaten_by
                for of_class in fronts
                for point in of_class.places
                if of_class.stage.energy.is_measured
            }
            assert front == {"pi-1": None, "server-1": None}
            comparison = compare_runs(*runs)
            titles = [chart.title for chart in energy_front(comparison, assign_styles(comparison.rows)).charts]
            assert len(titles) == len({of_class.stage.energy for of_class in fronts})


def test_the_page_never_sets_them_against_each_other():
    """Neither as a ratio of cases nor as one line over the days."""
    for kind in UNMEASURED:
        with table_row(kind):
            days = [{"started_at_ns": STARTED_AT_NS + day * DAY_NS} for day in range(2)]
            runs = [make_run(**measured(), **days[0]), make_run(**unmeasured(kind), **days[1]), make_reference(**measured(100.0))]
            with view_context(runs) as context:
                view = side_by_side.compare_view(context, ViewRequest("compare", {}), CaseFilter())
                cases = queries.cases(context.connection, CaseFilter(device="pi-1"))
                line = series(context, cases, FOLLOWED["gross_mj"], days=None, span=None)
            (of_device,) = [row for row in view.tables[0].dicts() if row["device"] == "pi-1"]
            assert (of_device["energy_gross_mj"], of_device["energy_provenance"], of_device["energy_gross_ratio"]) in (
                (20.0, "replayed", None),
                (80.0, "measured", 0.8),
                (None, None, None),
            )
            assert line.points == 1


def test_a_gate_does_not_judge_one_by_the_other():
    """A quarter of the energy keeps no limit, three times as much violates none: no case has the two figures."""
    for kind in UNMEASURED:
        with table_row(kind):
            before = make_side(agent="1")
            for factor in (1.0, 12.0):
                after = make_side(agent="2", start=100, **unmeasured(kind, 20.0 * factor))
                result = review(("before", StoreContents(before)), ("after", StoreContents(after)))
                outcomes = {finding.outcome for finding in gate.judge(result, gate.parse("energy:5%")) if finding.case is not None}
                assert outcomes == {"not judged"}
                text = to_markdown(result, ())
                assert "no figure" in text or "gone" in text or "energy board-input against board-input, replayed: not comparable" in text


def test_no_alert_rests_on_the_change_from_one_to_the_other(tmp_path):
    """Neither a step, nor a limit: the level is the measured one."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = make_days(noisy(20, 60), p50_ms=10.0)
            runs += make_days([None] * 60 + noisy(80, 20), p50_ms=10.0, seq=100, **unmeasured(kind, 80.0))
            rules = (
                AlertRule(name="step", kind="step", metrics=("energy", "energy-net")),
                AlertRule(name="limit", kind="limit", metrics=("energy",), above=50.0),
            )
            with WatchFile(tmp_path / kind) as file:
                result = check_alerts(RunHistory(runs), "x.json", file, AlertRules(rule=rules), (FIRST_DAY + 80) * DAY_NS, is_dry=True)
            assert not result.changes


def test_no_board_is_an_outlier_by_it():
    """Eleven boards of 80 mJ are the type; the twelfth has no measured energy."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [run for unit in range(11) for run in make_days(noisy(80, 10, seed=unit), device=f"pi-{unit:02}", p50_ms=10.0)]
            runs += make_days([20.0] * 10, device="pi-11", p50_ms=10.0, **unmeasured(kind))
            history = RunHistory(runs)
            (board_type,) = board_types(history, "energy", list(history.series()))
            assert (board_type.boards, board_type.odd) == (11, ())


def test_the_datacenter_is_weighed_against_what_was_measured():
    """Of two edge cases the measured one, of two servers the measured one, although both others take less."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [make_run(threads=1, **measured()), make_run(threads=4, **unmeasured(kind))]
            servers = [make_reference(threads=1, **measured(60.0)), make_reference(threads=4, **unmeasured(kind))]
            request = SideRequest(edge=None, model=None, precision=None, server="reference")
            sides = choose_sides(views.gather(StoreContents([*runs, *servers])).summaries, request)
            assert (sides.edge.provenance, sides.edge.full_mj.value) == ("measured", 80.0)
            assert {server.provenance for server in sides.servers} == {"measured"}


def test_replayed_energies_rank_among_themselves_and_are_marked():
    """The demo has no meter: its energies are compared with each other, under their own name."""
    provenance = {"latency": "measured", "energy": "replayed", "accuracy": "measured"}
    runs = [
        make(energy=make_energy(sensor="replay", gross_mj=mj), provenance=provenance)
        for make, mj in ((make_run, 20.0), (make_reference, 40.0))
    ]
    (row,) = [row for row in compare_runs(*runs).rows if not row.is_reference]
    assert (row.ratios.values.get("energy"), "replayed energy" in row.marks) == (0.5, True)
    result = matrix(views.gather(StoreContents(runs)).summaries, "energy", STARTED_AT_NS)
    best = {column: (str(cell.energy), cell.is_best) for (_, column), cell in result.cells.items()}
    assert best == {"pi-1": ("board-input, replayed", True), "server-1": ("board-input, replayed", False)}
