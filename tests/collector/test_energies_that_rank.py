"""Test that an energy that nobody measured never ranks against a measured one.

The measured one is 80 mJ, the other 20 mJ: in no view does the lower one win, or count, against it.
"""

from edgemeter.agent.contract.energy_provenance import energy_provenance, sensor_provenance
from edgemeter.agent.contract.figures import ENERGY
from edgemeter.collector.alerts.firing import FiringContext, firings
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.compare.columns import flat
from edgemeter.collector.compare.figure_differences import why_not_compared
from edgemeter.collector.compare.odd_boards import board_types
from edgemeter.collector.datacenter.sides import SideRequest, choose_sides
from edgemeter.collector.runs.cases import EnergyClass
from edgemeter.collector.show.comparison_charts import energy_against_accuracy
from edgemeter.collector.show.series_style import assign_styles
from edgemeter.collector.web import queries
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.series import FOLLOWED, series
from tests.fixtures.compared_cases import changed
from tests.fixtures.comparison_factory import (
    compare_runs,
    history_of,
    make_reference,
    make_run,
    summarised,
)
from tests.fixtures.record_factory import STARTED_AT_NS, make_energy
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy
from tests.fixtures.served_page import view_context
from tests.fixtures.side_factory import make_side

# How an energy of 20 mJ came about, and what its record states of it: the last one states too much.
UNMEASURED = {
    "replayed": ({"sensor": "replay:demo"}, "replayed"),
    "published": ({}, "published"),
    "replayed, stated as measured": ({"sensor": "replay"}, "measured"),
}


def unmeasured(kind, gross_mj=20.0):
    """Return the fields of a run with an energy of that kind."""
    sensor, provenance = UNMEASURED[kind]
    energy = make_energy(gross_mj=gross_mj, net_mj=gross_mj / 2, **sensor)
    return {
        "energy": energy,
        "provenance": {"latency": "measured", "energy": provenance, "accuracy": "measured"},
    }


def measured(gross_mj=80.0):
    """Return the fields of a run whose energy was measured."""
    return {"energy": make_energy(gross_mj=gross_mj, net_mj=gross_mj / 2)}


def test_the_provenance_is_worked_out_from_what_the_record_has():
    """A sensor that replays is believed before what the record states."""
    assert sensor_provenance("ina219", "measured") == "measured"
    assert sensor_provenance("replay:x", "measured") == "replayed"
    assert sensor_provenance("ina219", None) is None
    replayed = make_run(
        energy=make_energy(sensor="replay"),
        provenance={"latency": "measured", "energy": "replayed"},
    )
    assert energy_provenance(replayed, make_energy()) == "measured", (
        "what is stated of the first sensor is not true of one beside it"
    )
    assert energy_provenance(make_run(energy=None)) is None


def test_a_class_of_energy_names_its_provenance_where_it_was_not_measured():
    """Energies of one scope and provenance rank together.

    Measured ones lead, then the widest scope.
    """
    wall, replayed, board = (
        EnergyClass("wall-ac", "measured"),
        EnergyClass("wall-ac", "replayed"),
        EnergyClass("board-input", "measured"),
    )
    assert (str(wall), str(replayed)) == ("wall-ac", "wall-ac, replayed")
    assert sorted([replayed, board, wall], key=lambda energy_class: energy_class.preference) == [
        wall,
        board,
        replayed,
    ]


def test_the_table_has_no_ratio_of_them():
    """JSON, CSV and the verdict in words have none either."""
    for kind in UNMEASURED:
        with table_row(kind):
            comparison = compare_runs(
                *(make_run(**unmeasured(kind)) for _ in range(3)),
                *(make_reference(**measured()) for _ in range(3)),
            )
            (result,) = [result for result in comparison.rows if not result.is_reference]
            assert ENERGY not in result.decisions
            assert why_not_compared("energy_net_mj", result.case, result.reference)
            columns = flat(result)
            assert columns["energy_gross_mj_ratio"] is None
            assert columns["energy_provenance"] in (None, "replayed")


def test_a_case_takes_its_energy_from_runs_of_one_provenance():
    """The newest run decides, and the label is that of the runs of the figure."""
    for kind in UNMEASURED:
        with table_row(kind):
            older, newer = ({"started_at_ns": STARTED_AT_NS + day * DAY_NS} for day in (0, 1))
            (case,) = summarised(
                [make_run(**unmeasured(kind), **older), make_run(**measured(), **newer)]
            )
            assert (
                case.figures[ENERGY].value,
                case.figures[ENERGY].runs,
                case.energy.provenance,
            ) == (80.0, 1, "measured")
            (case,) = summarised(
                [make_run(**measured(), **older), make_run(**unmeasured(kind), **newer)]
            )
            assert (case.figures[ENERGY].value, case.energy.provenance) in (
                (20.0, "replayed"),
                (80.0, "measured"),
            )


def test_no_front_holds_both():
    """Measured energies have a chart of their own, on the page and in the report."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [
                make_run("pi-1", ap=0.57, **measured()),
                make_run("pi-2", ap=0.6, **unmeasured(kind)),
                make_reference(ap=0.6, **measured(100.0)),
            ]
            comparison = compare_runs(*runs)
            titles = [
                chart.title
                for chart in energy_against_accuracy(
                    comparison, assign_styles(comparison.rows)
                ).charts
            ]
            assert len(titles) == len(
                {row.case.energy.ranks_as for row in comparison.rows if ENERGY in row.case.figures}
            )


def test_the_page_never_draws_them_as_one_line():
    """The chart over the days keeps them apart, and its table is that of the comparison."""
    for kind in UNMEASURED:
        with table_row(kind):
            days = [{"started_at_ns": STARTED_AT_NS + day * DAY_NS} for day in range(2)]
            runs = [
                make_run(**measured(), **days[0]),
                make_run(**unmeasured(kind), **days[1]),
                make_reference(**measured(100.0)),
            ]
            context = view_context(runs)
            cases = queries.picked_cases(context.book, CaseFilter(device="pi-1"))
            line = series(context, cases, FOLLOWED["energy_gross_mj"], days=None, span=None)
            assert len(line.table.dicts()) == 1


def test_a_gate_does_not_judge_one_by_the_other():
    """A quarter of the energy keeps no limit, and three times as much violates none.

    No case has the two figures.
    """
    for kind in UNMEASURED:
        with table_row(kind):
            for factor in (1.0, 12.0):
                after = make_side(agent="2", start=100, **unmeasured(kind, 20.0 * factor))
                gate = changed(make_side(agent="1"), after, "energy:5%").gate
                assert (gate.outcome, {finding.change for finding in gate.findings}) == (
                    "inconclusive",
                    {None} if gate.findings else set(),
                )
                assert all("energ" in finding.reason for finding in gate.findings)


def test_no_alert_rests_on_the_change_from_one_to_the_other():
    """Neither a step nor a limit fires, as the level is the measured one."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = make_days(noisy(20, 60), p50_ms=10.0)
            runs += make_days(
                [None] * 60 + noisy(80, 20), p50_ms=10.0, seq=100, **unmeasured(kind, 80.0)
            )
            rules = (
                AlertRule(name="step", kind="step", metrics=("energy_gross_mj", "energy_net_mj")),
                AlertRule(name="limit", kind="limit", metrics=("energy_gross_mj",), above=50.0),
            )
            assert not firings(
                rules, FiringContext(history_of(runs), (), (), (FIRST_DAY + 80) * DAY_NS)
            )


def test_no_board_is_an_outlier_by_it():
    """Eleven boards of 80 mJ are the type, and the twelfth has no measured energy."""
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [
                run
                for unit in range(11)
                for run in make_days(noisy(80, 10, seed=unit), device=f"pi-{unit:02}", p50_ms=10.0)
            ]
            runs += make_days([20.0] * 10, device="pi-11", p50_ms=10.0, **unmeasured(kind))
            history = history_of(runs)
            (board_type,) = board_types(history, "energy_gross_mj", list(history.series()))
            assert (board_type.boards, board_type.odd) == (11, ())


def test_the_datacenter_is_weighed_against_what_was_measured():
    """The measured one of two edge cases and of two servers is taken.

    Both others take less.
    """
    for kind in UNMEASURED:
        with table_row(kind):
            runs = [make_run(threads=1, **measured()), make_run(threads=4, **unmeasured(kind))]
            servers = [
                make_reference(threads=1, **measured(60.0)),
                make_reference(threads=4, **unmeasured(kind)),
            ]
            request = SideRequest(edge=None, model=None, precision=None, server="reference")
            sides = choose_sides(summarised([*runs, *servers]), request)
            assert (sides.edge.provenance, sides.edge.full_mj.value) == ("measured", 80.0)
            assert {server.provenance for server in sides.servers} == {"measured"}


def test_replayed_energies_rank_among_themselves_and_are_marked():
    """The demo's energies, without a meter, are compared with each other under their own name."""
    provenance = {"latency": "measured", "energy": "replayed", "accuracy": "measured"}
    runs = [
        make(energy=make_energy(sensor="replay", gross_mj=mj), provenance=provenance)
        for make, mj in ((make_run, 20.0), (make_reference, 40.0))
    ]
    (row,) = [row for row in compare_runs(*runs).rows if not row.is_reference]
    assert (round(row.decisions[ENERGY].value, 6), "replayed energy" in row.marks) == (0.5, True)
