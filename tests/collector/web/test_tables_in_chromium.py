"""Test the lists of cases and runs in a real browser.

They are searched and sorted, and all of it is in the address.
"""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

pytestmark = pytest.mark.chromium

SEEN = (
    "[...document.querySelectorAll('#{} table.grid tbody tr')].filter(one "
    "=> one.offsetParent !== null)"
)
CASES = SEEN.format("table")
SET = (
    "(() => {{ const one = document.querySelector('{}'); one.value = '{}'; one.dispatchEvent(new "
    "Event('{}', {{bubbles: true}})); }})()"
)
SEARCH = "#{} .table-tools input[type=search]"


def state_of(page, name):
    return json.loads(parse_qs(urlsplit(page.run("location.href")).query).get(name, ["{}"])[0])


def test_a_search_leaves_the_rows_that_have_all_words_and_is_in_the_address(tab):
    """The words match in any order and case, and the row of a board's type opens.

    The address brings the search back, and an empty field leaves the address.
    """
    page = tab("compare")
    before = page.run(f"{CASES}.length")
    page.run(SET.format(SEARCH.format("table"), "INT8 pi5-07", "input"))
    names = page.run(f"{CASES}.map(one => [one.dataset.device, one.dataset.precision])")
    assert names == [[None, "int8"], ["simulated-pi5-07", "int8"]]
    assert state_of(page, "t_table") == {"q": "INT8 pi5-07"}
    second_tab = tab(page.run("(location.pathname + location.search).slice(1)"))
    assert second_tab.run(f"{CASES}.length") == 2
    assert (
        second_tab.run(f"document.querySelector('{SEARCH.format('table')}').value") == "INT8 pi5-07"
    )
    second_tab.run(SET.format(SEARCH.format("table"), "", "input"))
    assert second_tab.run(f"{CASES}.length") == before
    assert "t_table" not in second_tab.run("location.search")
    assert second_tab.complaints() == []


def test_the_back_button_shows_a_table_as_it_was(tab):
    """The table is sorted by a heading, then no longer sorted."""
    page = tab("device?device=simulated-pi5-01")
    runs = f"{SEEN.format('runs')}.map(one => one.textContent)"
    as_listed = page.run(runs)
    page.run("document.querySelectorAll('#runs thead button')[0].click()")
    assert page.run(runs) == page.run(f"{runs}.toSorted()") != as_listed
    assert state_of(page, "t_runs") == {"sort": ["Run", 1]}
    page.run("history.back()")
    page.until("!location.search.includes('t_runs')")
    page.until(
        f"JSON.stringify({runs}) === "
        f"{json.dumps(json.dumps(as_listed, separators=(',', ':'), ensure_ascii=False))}"
    )
    assert page.complaints() == []


def test_a_table_is_sorted_on_a_phone_as_by_its_headings(tab):
    """A field above the rows sorts them in both directions, and shows the order.

    It leaves the address with its pick.
    """
    page, sort = tab("compare", width=390), "#table .table-tools label:nth-of-type(2) select"
    as_listed = page.run(f"{CASES}.map(one => one.id)")
    for direction, arrow in ((1, "\N{UPWARDS ARROW}"), (-1, "\N{DOWNWARDS ARROW}")):
        page.run(
            SET.format(sort, json.dumps(["p50 ms", direction], separators=(",", ":")), "change")
        )
        assert (
            page.run(f"document.querySelector('{sort}').selectedOptions[0].textContent")
            == f"p50 ms {arrow}"
        )
        p50_ms = page.run(
            f"{CASES}.map(one => Number(one.querySelector('[data-label=\"p50 "
            "ms\"]').dataset.value))"
        )
        assert p50_ms == sorted(p50_ms, reverse=direction < 0)
        assert state_of(page, "t_table") == {"sort": ["p50 ms", direction]}
    page.run(SET.format(sort, "", "change"))
    assert page.run(f"{CASES}.map(one => one.id)") == as_listed
    assert "t_table" not in page.run("location.search")
    assert page.complaints() == []


def test_another_filter_keeps_how_the_table_is_shown_and_the_link_can_be_copied(tab):
    """The form's fields and the table's are both in the address, which is copied."""
    page = tab("compare")
    page.run(SET.format(SEARCH.format("table"), "pi5", "input"))
    page.run(SET.format("[name=precision]", "int8", "change"))
    page.until("location.search.includes('precision=int8') && document.readyState === 'complete'")
    assert state_of(page, "t_table") == {"q": "pi5"}
    page.run(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { "
        "window.copied = text; }}})"
    )
    page.run(
        "[...document.querySelectorAll('.exports button')].find(one => one.textContent === 'Copy "
        "link').click()"
    )
    page.until("window.copied === location.href")


def test_a_strange_address_is_no_error(tab):
    """An unreadable part of the address is ignored."""
    for address in (
        "compare?t_table=%7B%22q%22%3A5%2C%22sort%22%3A%22x%22%7D",
        "compare?t_table=nonsense",
        "device?t_runs=%5B1%5D",
    ):
        page = tab(address)
        assert page.run("document.querySelectorAll('table.grid tbody tr').length") > 5
        assert page.complaints() == []
