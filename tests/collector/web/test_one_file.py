"""Test the page as one file.

It is whole, it runs nothing but its own scripts, and it says what it leaves out.
"""

import base64
import functools
import hashlib
import re
from html.parser import HTMLParser

import msgspec
import pytest

from edgemeter.agent.contract import record_conditions
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.web import one_file
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from tests.fixtures.comparison_factory import OTHER_DATA, make_reference, make_run, no_energy
from tests.fixtures.one_file import charts_in, opened
from tests.fixtures.record_factory import make_energy, make_environment, violating
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import source_from
from tests.fixtures.side_factory import make_side

VOID = {"meta", "br", "link", "input"}
SIDES = (("pi-1", 10.2, "device"), ("server-1", 10.0, "reference"))
HOSTILE = "</script><script>alert(1)</script><img src=http://x/y onerror=a()>\"'&\x00\x1b[2J"


class Page(HTMLParser):
    """A parsed page, with its elements and its text.

    It has whether each element is closed by its own end.
    """

    def __init__(self, html):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """An end closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    def all(self, tag):
        """Return the attributes of every element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        """Return all text, its spaces made single."""
        return " ".join("".join(self.words).split())


def page_of(*runs):
    """Return the file that begins with the comparison of `runs` with the reference role."""
    book = book_of(source_from(runs))
    return opened(one_file.whole_page(book, TrendEvents(), FileChoice(reference="reference")))


def shown_first(html):
    """Return what such a file shows at once."""
    return re.search(r'<div id="shown".*?(?=<template)', html, re.DOTALL)[0]


def first_of(*runs):
    """Return what the file of `runs` shows at once."""
    return shown_first(page_of(*runs))


def many_cases():
    """Return runs of 60 cases.

    They differ in device, precision and runtime; some are disturbed, or lack energy or accuracy.
    """
    disturbed = violating("disturbed", "busy-machine")
    device = [
        make_run(
            device=f"board-{index % 10}",
            precision=("fp32", "fp16", "int8")[index % 3],
            runtime=("onnx", "litert")[index % 2],
            sha256=f"{index:064x}",
            p50_ms=1.5**index % 700 + 0.3,
            ap=None if index % 7 == 0 else 0.3 + index / 200,
            verdict=disturbed if index % 9 == 0 else record_conditions.Verdict(state="ok"),
            **(no_energy() if index % 4 else {}),
        )
        for index in range(59)
    ]
    return [*device, make_reference()]


ODD = {
    "one run": [make_run(), make_reference()],
    "the reference alone": [make_reference()],
    "AP of zero": [make_run(ap=0.0), make_reference(ap=0.0)],
    "neither accuracy nor energy": [
        make_run(ap=None, **no_energy()),
        make_reference(ap=None, **no_energy()),
    ],
    "no percentiles": [
        make_run(p50_ms=None, latencies_ms=[]),
        make_reference(p50_ms=None, latencies_ms=[]),
    ],
    "latencies that none has": [
        make_run(p50_ms=1e-12),
        make_reference(p50_ms=1e15, latencies_ms=[1e-6, 1e12]),
    ],
    "60 cases": many_cases(),
}


@functools.cache
def odd_page(name):
    """Return the file of such runs, made once."""
    return page_of(*ODD[name])


@pytest.mark.nightly
def test_every_page_is_well_formed_and_every_number_drawn_is_one():
    """Each element is closed, and no coordinate is NaN, infinite or missing."""
    for name in ODD:
        with table_row(name):
            page = Page(odd_page(name))
            assert page.open == []
            values = [
                value
                for tag, attributes in page.elements
                if tag in {"path", "g", "text"}
                for value in attributes.values()
                if value
            ]
            assert not [
                value
                for value in values
                if re.search(r"\b(nan|infinity|undefined|null)\b", value, re.IGNORECASE)
            ]
            assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)


def test_the_page_refers_to_nothing_outside():
    """The page loads no style sheet, font, picture or script from any address."""
    html = odd_page("60 cases")
    page = Page(html)
    outside = [
        value
        for tag, attributes in page.elements
        # A source of a published figure is followed by whoever clicks.
        if not (tag == "a" and attributes.get("rel") == "external noreferrer")
        for name, value in attributes.items()
        if name in {"src", "href", "action", "srcset", "poster", "data"}
        and tag != "form"
        and not (value or "").startswith("#")
    ]
    assert outside == ["data:,"]
    assert "@import" not in html
    assert not page.all("iframe")


def test_the_page_may_run_nothing_but_its_own_scripts():
    """The page's policy names the scripts by hash.

    A device's text cannot run even if it got through.
    """
    html = odd_page("one run")
    (policy,) = [
        attributes["content"]
        for attributes in Page(html).all("meta")
        if attributes.get("http-equiv")
    ]
    (page_script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    for script in (page_script, charts_in(html)):
        assert (
            f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
            in policy
        )
    assert "default-src 'none'" in policy


def test_what_a_device_sent_stays_text_everywhere():
    """No reason, file, board or library becomes an element."""
    hostile = make_run(
        task=HOSTILE,
        environment=make_environment(
            board=HOSTILE, libraries={HOSTILE: HOSTILE}, power_mode=HOSTILE
        ),
        verdict=record_conditions.Verdict(
            state="disturbed",
            violations=(record_conditions.Violation(rule=HOSTILE, subject=HOSTILE),),
        ),
        suite=HOSTILE,
        mode=HOSTILE,
        **no_energy(HOSTILE),
    )
    hostile = msgspec.structs.replace(
        hostile, model=msgspec.structs.replace(hostile.model, file=HOSTILE)
    )
    html = page_of(hostile, make_run(id=HOSTILE, data=OTHER_DATA), make_reference(task=HOSTILE))
    page = Page(html)
    assert page.open == []
    assert {attributes.get("type") for attributes in page.all("script")} == {
        None,
        "application/json",
    }
    assert len([attributes for attributes in page.all("script") if not attributes]) == 1
    assert not page.all("img")
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "alert(1)" in page.text


def test_every_link_leads_to_a_view_that_the_file_holds():
    """Every link within a view leads to a place in it."""
    html = odd_page("60 cases")
    addresses = {
        attributes["data-address"]
        for tag, attributes in Page(html).elements
        if "data-address" in attributes
    }
    first = Page(shown_first(html))
    targets = {attributes["id"] for _, attributes in first.elements if "id" in attributes}
    named = {target.partition("?")[0] for target in re.findall(r'href="#/([^"]*)"', html)}
    assert named <= {address.partition("?")[0] for address in addresses}
    assert {
        attributes["href"][1:]
        for attributes in first.all("a")
        if re.match("#[^/]", attributes["href"])
    } <= targets
    assert len([target for target in targets if target.startswith("case-")]) == 60


def test_what_is_left_out_or_disturbed_is_named_with_its_reason():
    """An unmatched case has its newest run, and an invalid run its reason.

    The page also says why a figure cannot be believed.
    """
    verdicts = [violating("invalid", "outputs-differ"), violating("disturbed", "under-voltage")]
    runs = [
        make_run(id=verdict.state, device=verdict.state, verdict=verdict) for verdict in verdicts
    ]
    text = Page(
        first_of(make_run(), make_run(id="left", data=OTHER_DATA), *runs, make_reference())
    ).text
    assert re.search(r"1 run: no reference with the same data: .*left", text)
    assert "1 run: invalid, or not comparable" in text
    assert "the supply voltage was too low" in text
    ok_runs = [make_run(id=f"ok-{number}") for number in range(3)]
    text = Page(first_of(*ok_runs, make_run(id="busy", verdict=verdicts[1]), make_reference())).text
    assert "1 of 4 runs does not count, because it was disturbed" in text
    assert "the supply voltage was too low" not in text


def test_the_page_says_what_changes_between_days_include():
    """One sentence says it, whatever the number of cases."""
    sides = (
        make_side(agent="1", runs=4),
        make_side(agent="1", start=2 * 86_400, runs=4, role="reference", precision="fp16"),
    )
    text = Page(first_of(*sides[0], *sides[1])).text
    assert text.count("changes between days include an assumed scatter of 2% between days") == 1


def test_energies_of_different_scopes_are_drawn_apart_and_the_page_states_why():
    """A wall socket's millijoules are not on a board's axis."""
    page = Page(first_of(make_run(), make_reference(energy=make_energy(scope="wall-ac"))))
    labels = [
        attributes["aria-label"]
        for attributes in page.all("div")
        if "Energy" in attributes.get("aria-label", "")
    ]
    assert [label.partition(": Up and left")[0].rpartition(", ")[2] for label in labels] == [
        "board-input"
    ]
    assert "(board-input; wall-ac)" in page.text
