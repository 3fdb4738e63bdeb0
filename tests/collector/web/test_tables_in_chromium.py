"""Facts about the lists of cases and runs in a real browser: searched, grouped and narrowed to columns, all of it in the address."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fixtures.axe import axe_script, serious

pytestmark = pytest.mark.chromium

SEEN = "[...document.querySelectorAll('#{} table.grid tbody tr:not(.group)')].filter(one => one.offsetParent !== null)"
CASES = SEEN.format("table")
GROUPS = "[...document.querySelectorAll('#{} tr.group th')].map(one => one.textContent)"
HEADS = "[...document.querySelectorAll('#{} table.grid')][0].tHead.innerText.split(/\\s*\\t\\s*/)"
SET = "(() => {{ const one = document.querySelector('{}'); one.value = '{}'; one.dispatchEvent(new Event('{}', {{bubbles: true}})); }})()"
SEARCH, GROUP = "#{} .table-tools input[type=search]", "#{} .table-tools select"


def state_of(page, name):
    """Return how a table is shown, as the address has it."""
    return json.loads(parse_qs(urlsplit(page.run("location.href")).query).get(name, ["{}"])[0])


def test_a_search_leaves_the_rows_that_have_all_words_and_is_in_the_address(tab):
    """In any order and case; the row of a board's type opens for it; the address brings it back, and an empty field leaves the address."""
    page = tab("compare")
    before = page.run(f"{CASES}.length")
    page.run(SET.format(SEARCH.format("table"), "INT8 pi5-07", "input"))
    names = page.run(f"{CASES}.map(one => [one.dataset.device, one.dataset.precision])")
    assert names == [[None, "int8"], ["simulated-pi5-07", "int8"]]
    assert state_of(page, "t_table") == {"q": "INT8 pi5-07"}
    second_tab = tab(page.run("(location.pathname + location.search).slice(1)"))
    assert second_tab.run(f"{CASES}.length") == 2
    assert second_tab.run(f"document.querySelector('{SEARCH.format('table')}').value") == "INT8 pi5-07"
    second_tab.run(SET.format(SEARCH.format("table"), "", "input"))
    assert second_tab.run(f"{CASES}.length") == before
    assert "t_table" not in second_tab.run("location.search")
    assert second_tab.complaints() == []


def test_rows_are_grouped_and_each_group_has_its_number_of_rows(tab):
    """Rows of a group stand below its heading, in the order in which they are sorted; what does not differ is not offered."""
    page, key = tab("compare"), "board"
    keys = page.run(f"[...document.querySelector('{GROUP.format('table')}').options].map(one => one.value)")
    assert {"board", "precision"} <= set(keys)
    assert "fleet" not in keys
    page.run(SET.format(GROUP.format("table"), key, "change"))
    headings = page.run(GROUPS.format("table"))
    names = page.run(f"{CASES}.map(one => one.dataset.{key})")
    assert headings == [f"{name} {names.count(name)} row{'s' * (names.count(name) != 1)}" for name in dict.fromkeys(names)]
    assert [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name] == list(dict.fromkeys(names))
    page.run("document.querySelectorAll('#table thead button')[3].click()")
    p50_ms = page.run(f"{CASES}.map(one => [one.dataset.{key}, Number(one.cells[3].dataset.value)])")
    for name in dict.fromkeys(names):
        of_group = [value for group, value in p50_ms if group == name]
        assert of_group == sorted(of_group)
    assert state_of(page, "t_table") == {"by": key, "sort": ["p50 ms", 1]}
    assert page.complaints() == []


def test_columns_are_chosen_and_the_choice_survives_a_reload_and_the_back_button(tab):
    """A column that is not ticked is hidden in all tables of the section; back shows it again."""
    page = tab("device?device=simulated-pi5-01")
    headings = page.run(HEADS.format("runs"))
    page.run(
        "[...document.querySelectorAll('#runs .columns label')].find(one => one.textContent === 'p90 ms').querySelector('input').click()"
    )
    assert page.run(HEADS.format("runs")) == [head for head in headings if head != "p90 ms"]
    page.run(SET.format(GROUP.format("runs"), "precision", "change"))
    assert state_of(page, "t_runs") == {"by": "precision", "off": ["p90 ms"]}
    second_tab = tab(page.run("(location.pathname + location.search).slice(1)"))
    assert second_tab.run(HEADS.format("runs")) == [head for head in headings if head != "p90 ms"]
    assert len(second_tab.run(GROUPS.format("runs"))) == 2
    page.run("history.back()")
    page.until("document.querySelectorAll('#runs tr.group').length === 0")
    assert page.run(HEADS.format("runs")) == [head for head in headings if head != "p90 ms"]
    page.run("history.back()")
    page.until("!location.search.includes('t_runs')")
    page.until("[...document.querySelectorAll('#runs thead th')].every(one => !one.hidden)")
    assert page.run(HEADS.format("runs")) == headings
    assert page.complaints() == []


def test_a_table_is_sorted_on_a_phone_as_by_its_headings(tab):
    """A field above the rows sorts them in both directions, shows how they are sorted, and leaves the address with its pick."""
    page, sort = tab("compare", width=390), "#table .table-tools label:nth-of-type(3) select"
    as_listed = page.run(f"{CASES}.map(one => one.id)")
    for direction, arrow in ((1, "\N{UPWARDS ARROW}"), (-1, "\N{DOWNWARDS ARROW}")):
        page.run(SET.format(sort, json.dumps(["p50 ms", direction], separators=(",", ":")), "change"))
        assert page.run(f"document.querySelector('{sort}').selectedOptions[0].textContent") == f"p50 ms {arrow}"
        p50_ms = page.run(f"{CASES}.map(one => Number(one.querySelector('[data-label=\"p50 ms\"]').dataset.value))")
        assert p50_ms == sorted(p50_ms, reverse=direction < 0)
        assert state_of(page, "t_table") == {"sort": ["p50 ms", direction]}
    page.run(SET.format(sort, "", "change"))
    assert page.run(f"{CASES}.map(one => one.id)") == as_listed
    assert "t_table" not in page.run("location.search")
    assert page.complaints() == []


def test_another_filter_keeps_how_the_table_is_shown_and_the_link_can_be_copied(tab):
    """The form's fields and the table's stand side by side; what is copied is the address."""
    page = tab("compare")
    page.run(SET.format(GROUP.format("table"), "board", "change"))
    page.run(SET.format("[name=precision]", "int8", "change"))
    page.until("location.search.includes('precision=int8') && document.readyState === 'complete'")
    assert state_of(page, "t_table") == {"by": "board"}
    page.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.copied = text; }}})")
    page.run("[...document.querySelectorAll('.exports button')].find(one => one.textContent === 'Copy link').click()")
    page.until("window.copied === location.href")


@pytest.mark.needs("npm")
def test_a_strange_address_is_no_error_and_axe_finds_nothing_serious_in_a_grouped_table(tab):
    """What cannot be read is as if it were not there; with the choice of columns open."""
    for address in ("compare?t_table=%7B%22q%22%3A5%2C%22off%22%3A%22x%22%7D", "compare?t_table=nonsense", "device?t_runs=%5B1%5D"):
        page = tab(address)
        assert page.run("document.querySelectorAll('table.grid tbody tr').length") > 5
        assert page.complaints() == []
    page = tab("device?device=simulated-pi5-01", width=700, dark=True)
    page.run(SET.format(GROUP.format("runs"), "precision", "change"))
    page.run("document.querySelector('#runs .columns').open = true")
    page.run(axe_script())
    assert serious(page.run("axe.run(document, {resultTypes: ['violations']})")) == []
    assert page.fits()
