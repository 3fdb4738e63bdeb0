"""Facts about the drawing of a photograph: each mark in its panel where its box is, in its line, and names that stay text."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from edgemeter.collector.predictions.differences import KINDS, SAME
from edgemeter.collector.web.marked_photograph import SIGNS, Mark, PhotographPanel, legend, marked_photograph
from edgemeter.collector.web.markup import text_of
from tests.fixtures.hostile import MARKUP

BOXES = {
    "both": (10, 20, 30, 40),
    "missed": (100.5, 0, 50, 60),
    "false": (600, 400, 39, 79),
    "moved": (300, 300, 20, 10),
    "other-class": (5, 470, 9, 9),
}


def drawing(*panels, size=(640, 480), source="data:x", caption="a.jpg"):
    """Return the figure of panels as a tree."""
    return ET.fromstring(marked_photograph(panels, size, source, "p1", caption))  # noqa: S314 - our own


def mark(kind, box, text="dog .50"):
    """Return a mark at x, y, width, height."""
    return Mark(kind, tuple(box), text, f"{kind} of a test")


def boxes(svg):
    """Return the boxes of a drawing by the kind of their mark, each by_kind with a halo of its size."""
    by_kind = {}
    for group in svg.iterfind("g"):
        if group.get("class").startswith("mark "):
            halo, box = group.findall("rect")
            numbers = [tuple(float(shape.get(name)) for name in ("x", "y", "width", "height")) for shape in (halo, box)]
            assert numbers[0] == numbers[1]
            by_kind.setdefault(group.get("class").removeprefix("mark "), []).append(numbers[1])
    return by_kind


def test_each_mark_is_in_its_panel_at_its_box():
    """In pixels of the photograph, whatever size the page gives it: the view box is the photograph."""
    panels = [
        PhotographPanel("Truth", (mark("missed", BOXES["missed"]), mark("both", BOXES["both"]))),
        PhotographPanel("A", (mark("both", BOXES["both"]),)),
        PhotographPanel("B", tuple(mark(kind, BOXES[kind]) for kind in ("false", "moved", "other-class"))),
    ]
    figure = drawing(*panels)
    svgs = figure.findall(".//svg")
    assert [svg.get("viewBox") for svg in svgs] == ["0 0 640 480"] * 3
    assert [heading.text for heading in figure.iterfind(".//p")] == ["Truth", "A", "B"]
    expected = [{kind: [BOXES[kind]] for kind in kinds} for kinds in (("missed", "both"), ("both",), ("false", "moved", "other-class"))]
    assert [boxes(svg) for svg in svgs] == expected
    assert [group.get("class") for group in svgs[0].iterfind("g")][:2] == ["mark both", "mark missed"]


def test_the_copy_is_in_the_file_once_and_fills_every_panel():
    """The first panel holds it, the following refer to it; without one there is a ground of the same size."""
    panels = [PhotographPanel(name, ()) for name in ("Truth", "A", "B")]
    first, *following = drawing(*panels, source="data:image/jpeg;base64,AAAA").findall(".//svg")
    assert first.find("image").attrib == {
        "id": "p1", "href": "data:image/jpeg;base64,AAAA", "width": "640", "height": "480", "preserveAspectRatio": "none",
    }  # fmt: skip
    assert [svg.find("use").get("href") for svg in following] == ["#p1", "#p1"]
    for svg in drawing(*panels, source=None).findall(".//svg"):
        assert svg.find("image") is None
        assert (svg.find("rect").get("width"), svg.find("rect").get("height")) == ("640", "480")


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (3000, 200), (24, 24)])
def test_plates_lie_within_the_photograph_and_beside_each_other(size):
    """Of marks in all four corners; letters are as large in a large photograph as in a small one."""
    width, height = size
    corners = [(x, y, width / 8, height / 8) for x in (0, width * 7 / 8) for y in (0, height * 7 / 8)]
    svg = drawing(PhotographPanel("B", tuple(mark("false", corner, "cup .5") for corner in corners)), size=size).find(".//svg")
    plates = [[float(shape.get(name)) for name in ("x", "y", "width", "height")] for shape in svg.iterfind("g[@class='plate false']/rect")]
    assert len(plates) == 4
    letter = float(svg.get("style").removeprefix("font-size:").removesuffix("px"))
    assert letter == pytest.approx(max(width, height * 0.75) / 400 * 11.5, abs=0.01)
    for x, y, across, down in plates:
        assert -0.01 <= x <= max(width - across, 0) + 0.01
        assert -0.01 <= y <= max(height - down, 0) + 0.01
    if min(size) > 300:
        for number, (x, y, across, down) in enumerate(plates):
            for other_x, other_y, other_across, other_down in plates[:number]:
                assert x >= other_x + other_across or other_x >= x + across or y >= other_y + other_down or other_y >= y + down


def test_plates_of_boxes_upon_each_other_do_not_cover():
    """Three objects found in one and the same box: three names are read."""
    svg = drawing(PhotographPanel("B", tuple(mark("false", (100, 100, 60, 60), text) for text in ("a", "b", "c")))).find(".//svg")
    tops = sorted(float(shape.get("y")) for shape in svg.iterfind("g[@class='plate false']/rect"))
    height = float(svg.find("g[@class='plate false']/rect").get("height"))
    assert all(later - earlier >= height - 0.02 for earlier, later in pairwise(tops))


def test_a_name_that_is_markup_stays_text():
    """As heading, label, title and caption; a long label is cut."""
    figure = drawing(PhotographPanel(MARKUP, (Mark("false", (1, 1, 9, 9), MARKUP, MARKUP),)), caption=MARKUP)
    assert figure.find(".//script") is None
    assert figure.find(".//p").text == figure.find(".//title").text == figure.find("figcaption").text == MARKUP
    plate = figure.find(".//text").text
    assert plate.startswith("</script>")
    assert len(plate) == 26


def test_the_legend_counts_the_kinds_with_their_lines_and_signs():
    """In the order given; without boxes there are no lines."""
    names = {"moved": "moved away", "both": MARKUP}
    for has_lines in (True, False):
        table = ET.fromstring(legend(["Objects", "All"], names, {"moved": [1234], "both": [5]}, has_lines=has_lines))  # noqa: S314 - our own
        rows = [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in table.iter("tr")]
        assert rows == [["Objects", "All"], ["\N{LEFT RIGHT ARROW} moved away", "1,234"], [" ".join(MARKUP.split()), "5"]]
        assert [svg.get("class") for svg in table.iter("svg")] == (["mark moved", "mark both"] if has_lines else [])


def test_every_kind_of_difference_has_a_line_of_its_own():
    """Apart from what does not differ, each has a sign, a colour and a dash; two with one sign differ in both following."""
    style = text_of("page.css")
    assert set(SIGNS) == set(KINDS) - SAME
    colours = {kind: re.search(rf"\.{kind} {{ --mark: (#\w+)", style)[1] for kind in SIGNS}
    dashes = {kind: match[1] if (match := re.search(rf"\.{kind} \.box {{ stroke-dasharray: ([^;]+)", style)) else "" for kind in SIGNS}
    assert len(set(colours.values())) == len(SIGNS)
    assert len({(SIGNS[kind], dashes[kind]) for kind in SIGNS}) == len(SIGNS)
