"""Test the filter above a comparison.

An address that can be passed on marks the cases that meet its limits, and names the case to take.
"""

import re

import pytest
from msgspec.structs import replace

from edgemeter.collector.web.site import show
from edgemeter.collector.web.view import read_address
from tests.fixtures.choice_cases import sides
from tests.fixtures.comparison_factory import day_by_day
from tests.fixtures.served_page import served, view_context

ADDRESS = "compare?require=p50<=8ms,+ap>=.72"


def runs_of_days(*cases):
    return [
        replace(run, id=f"run-{index}") for index, run in enumerate(day_by_day(*(cases or sides())))
    ]


def view_of(address, runs=None):
    context = view_context(runs or runs_of_days())
    return show(context, read_address(address))


def test_each_case_is_marked_by_the_requirement_that_decides_with_its_interval():
    """The best case comes first, and a sentence above the table names the recommended one."""
    view = view_of(ADDRESS)
    (table,) = [table for table in view.tables if table.name == "choice"]
    assert {row["case"]: row["outcome"] for row in table.dicts()} == {
        "int8 on litert": "met",
        "fp32 on onnx": "not met",
    }
    assert view.lead.startswith("Recommended: int8 on litert, with the lowest energy, ")
    best, other = re.findall(r'<tr id="case-\w+" class="([^"]*)".*?</tr>', view.body)
    assert ("pick" in best.split(), "out" in other.split()) == (True, True)
    assert re.search(r"p50&lt;=8ms: 12\.\d ms \(9[\d.]+% 1\d\.\d to 1\d\.\d\)", view.body)


def test_what_misses_a_limit_can_be_hidden():
    """The page says that cases are hidden."""
    view = view_of(f"{ADDRESS}&show=met")
    assert len(re.findall(r'<tr id="case-', view.body)) == 1
    assert "Not shown, because a limit is not met: 1 case." in view.body


def test_without_limits_there_is_no_choice():
    """The table has every case, and no column for the choice."""
    view = view_of("compare")
    assert [table.name for table in view.tables] == ["comparison"]
    assert "Limits</th>" not in view.body


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("compare?require=p50<=9mJ", "p50 is in ms, not in mJ"),
        ("compare?require=p59<=3", "did you mean"),
        ("compare?cheapest=beauty", "is not a figure"),
    ],
)
def test_an_error_stands_above_the_table_and_the_form_keeps_its_values(address, words):
    """The reader corrects the limits, and need not write them again."""
    view = view_of(address)
    assert words in view.body
    picked = {field.name: field.picked for field in view.inputs if field.picked}
    assert picked == dict(read_address(address).fields)


@pytest.mark.chromium
@pytest.mark.parametrize(
    "address", [ADDRESS, "compare?require=p99<=33ms", "compare?require=p50<=9mJ"]
)
def test_form_and_first_row_are_on_one_screen_of_a_phone(browser, address):
    """This holds where a case is out, where nothing is certain, and where a limit is wrong."""
    with served(runs_of_days()) as server:
        page = browser.open(f"{server.url}{address.replace(' ', '+')}", width=390)
        assert page.fits()
        assert (
            page.run("document.querySelector('table.grid tbody tr').getBoundingClientRect().bottom")
            <= 844
        )
        assert page.complaints() == []
        page.close()


@pytest.mark.chromium
def test_the_form_works_without_a_script(browser):
    """The button sends the written values."""
    with served(runs_of_days()) as server:
        page = browser.open(f"{server.url}{ADDRESS}", has_scripts=False)
        page.run(
            "document.querySelector('[name=require]').value = 'p50<=1ms'; "
            "document.querySelector('form.filters').submit()"
        )
        page.until(
            "location.search.includes('p50%3C%3D1ms') && "
            "document.querySelector('.lead')?.textContent.includes('none')"
        )
        page.close()
