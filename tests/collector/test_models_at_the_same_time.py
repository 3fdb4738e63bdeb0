"""Test a model alone and the same model beside another in one ledger.

No view puts the two on one scale, or takes the shared energy for the model's own.
"""

import io

import pytest

from edgemeter.agent.base.console import Console
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.collector.alerts.firing import FiringContext, firings
from edgemeter.collector.alerts.rules import AlertRule
from edgemeter.collector.compare.columns import flat
from edgemeter.collector.compare.comparison import comparable
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.compare_table import show_comparison
from edgemeter.collector.show.series_style import assign_styles
from edgemeter.collector.web import side_by_side
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import (
    compare_runs,
    history_of,
    make_reference,
    make_run,
    summarised,
)
from tests.fixtures.record_factory import make_energy
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days
from tests.fixtures.served_page import view_context

NEIGHBOUR = Neighbour(model="llm", sha256="cd" * 32, runtime="llama", threads=1)
BESIDE = "llm cdcdcd llama 1 thread"

# The median of three rounds with 1.4, 1.5 and 1.6.
SLOW_DOWN = pytest.approx(1.5, rel=0.01)


def accompanied(ratio=1.5, **changes):
    """Return a run beside another model, slowed down so much: 15 ms, and 20 mJ that both took."""
    together = Together(neighbours=(NEIGHBOUR,), slow_down_ratio=ratio)
    return make_run(
        **{"p50_ms": 15.0, "together": together, "energy": make_energy(gross_mj=20.0, net_mj=10.0)}
        | changes
    )


def ledger():
    """Return runs of a model alone, beside another, and of a model that is faster and better.

    There are three runs of each; alone the model takes 80 mJ.
    """
    alone = [
        make_run(p50_ms=10.0 + number / 10, energy=make_energy(gross_mj=80.0, net_mj=40.0))
        for number in range(3)
    ]
    small = [
        make_run(
            model="small", sha256="ee" * 32, p50_ms=5.0, ap=0.7, energy=make_energy(gross_mj=50.0)
        )
        for _ in range(3)
    ]
    return [*alone, *(accompanied(ratio) for ratio in (1.4, 1.5, 1.6)), *small]


def test_the_slow_down_over_runs_is_that_of_their_rounds():
    """The interval is right because each record has the slow-down of its own round."""
    case = next(case for case in summarised(ledger()) if case.key.together)
    slow_down = case.figures["together_slow_down_ratio"]
    assert (slow_down.value, slow_down.runs) == (SLOW_DOWN, 3)
    assert 1.2 < slow_down.low < 1.4
    assert 1.6 < slow_down.high < 1.9


def test_a_comparison_has_no_ratio_between_the_two():
    """Neither is the other's reference, and the energy is shared.

    The groups and their headings separate them, on the page too.
    """
    comparison = compare_runs(*ledger(), make_reference(), reference="reference")
    assert all(not row.case.key.together for row in comparison.rows)
    by_device = compare_runs(*ledger(), reference="device")
    groups = comparable(by_device.rows)
    assert all(len({row.case.key.together for row in rows}) == 1 for rows in groups)
    assert all(row.reference.key.together == row.case.key.together for row in by_device.rows)
    console = Console(file=io.StringIO(), width=250)
    show_comparison(by_device, console)
    assert f"single_stream, together with {BESIDE}" in console.file.getvalue()
    (row,) = [row for row in by_device.rows if row.case.key.together]
    columns = flat(row)
    assert (
        columns["together"],
        columns["energy_gross_mj"],
        columns["together_slow_down_ratio"],
    ) == (BESIDE, None, SLOW_DOWN)
    page = side_by_side.compare_view(
        view_context(ledger()), ViewRequest("compare", {}), CaseFilter()
    )
    assert f"single_stream, together with {BESIDE}" in str(page.body)
    assert energy_provenance(accompanied()) == "shared"


def test_charts_are_of_one_company():
    """The title of each chart says whether the model runs alone or beside the other."""
    comparison = compare_runs(*ledger(), reference="device")
    styles = assign_styles(comparison.rows)
    front_titles = [
        chart.title
        for chart in comparison_charts.latency_against_accuracy(comparison, styles).charts
    ]
    assert sorted(f"together with {BESIDE}" in title for title in front_titles) == [False, True]
    assert (
        "shared with llm" in comparison_charts.energy_against_accuracy(comparison, styles).notes[0]
    )


def test_no_alert_takes_one_for_the_other():
    """A model that is measured beside another from some day on has not become slower.

    A limit of energy considers the model's own only.
    """
    runs = make_days([20.0] * 60, p50_ms=10.0)
    together = Together(neighbours=(NEIGHBOUR,), slow_down_ratio=2.0)
    runs += make_days([None] * 60 + [200.0] * 20, p50_ms=20.0, seq=100, together=together)
    rules = (
        AlertRule(name="step", kind="step", metrics=("latency_p50_ms", "energy_gross_mj")),
        AlertRule(name="limit", kind="limit", metrics=("energy_gross_mj",), above=50.0),
    )
    assert not firings(rules, FiringContext(history_of(runs), (), (), (FIRST_DAY + 80) * DAY_NS))
