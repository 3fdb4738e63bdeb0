"""The decision on the page: the same sentence as in the terminal, from a form whose address can be passed on."""

import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from edgemeter.agent.cli.main import cli
from edgemeter.collector.web import one_file
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.site import show
from edgemeter.collector.web.view import ViewRequest, read_address
from tests.fixtures.choice_cases import sides
from tests.fixtures.comparison_factory import day_by_day, document
from tests.fixtures.one_file import opened
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import indexed, served, view_context

ADDRESS = "decide?latency_p50_ms=8&accuracy_value=.72"


def runs_of_days(*cases):
    """Return the runs of cases, each on a day of its own."""
    return [replace(run, id=f"run-{index}") for index, run in enumerate(day_by_day(*(cases or sides())))]


def view_of(address, runs=None):
    """Return the view that an address shows of these runs."""
    with view_context(runs or runs_of_days()) as context:
        return show(context, read_address(address))


def test_page_and_terminal_have_the_same_sentence(tmp_path):
    """One sentence, whether by the fields of the form or as limits are written."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*runs_of_days()))
    for address, limits in (
        (ADDRESS, "p50<=8ms, ap>=.72"),
        ("decide?where=p50<=8ms,+ap>=.72,+runtime=litert", "p50<=8ms, ap>=.72, runtime=litert"),
        ("decide?latency_p99_ms=33", "p99<=33ms"),
        ("decide", ""),
    ):
        with table_row(address):
            printed = CliRunner().invoke(cli, ["compare", "--ledger", str(path), "--choose", limits, "--format", "json"])
            assert view_of(address).lead == f"{json.loads(printed.stdout)['sentence']}."


def test_an_error_stands_above_the_form_which_keeps_its_values():
    """The reader mends one field, and need not write the others again. A facet of the form narrows the choice, too."""
    view = view_of("decide?latency_p50_ms=9mJ&energy_gross_mj=60")
    assert "p50 is in ms, not in mJ" in view.body
    assert {field.name: field.picked for field in view.inputs if field.picked} == {"latency_p50_ms": "9mJ", "energy_gross_mj": "60"}
    assert "did you mean" in view_of("decide?where=p59<=3").body
    assert "is not a figure" in view_of("decide?by=beauty").body
    assert view_of("decide?precision=fp32").title == "Ship fp32 on onnx"
    assert view_of("decide?device=pi-9").title == "No run matches"


def test_a_file_holds_the_decision_that_it_was_made_with():
    """First the one that was asked for; without one that without limits is among the views."""
    with indexed(runs_of_days()) as index:
        first = ViewRequest("decide", {"latency": "8"})
        page = one_file.whole_page(index, TrendEvents(), FileChoice(CaseFilter(), first=first))
        assert "<h1>Ship int8 on litert</h1>" in page.partition("<template")[0]
        assert 'data-address="decide"' in opened(one_file.whole_page(index, TrendEvents(), FileChoice()))


@pytest.mark.chromium
def test_the_decision_fits_and_its_form_works_without_a_script(browser):
    """Where cases are greyed, where nothing is certain, and where a field is wrong; the button sends what was written."""
    with served(runs_of_days()) as server:
        for address, width in ((ADDRESS, 1400), ("decide?latency_p99_ms=33", 390), ("decide?latency_p50_ms=9mJ", 390)):
            page = browser.open(f"{server.url}{address}", width=width, dark=width == 390)
            assert page.fits()
            assert page.complaints() == []
            page.close()
        page = browser.open(f"{server.url}{ADDRESS}", has_scripts=False)
        page.run("document.querySelector('[name=latency_p50_ms]').value = '1'; document.querySelector('form.filters').submit()")
        page.until("location.search.includes('latency_p50_ms=1&') && document.querySelector('h1')?.textContent === 'Nothing to ship'")
        page.close()
