"""Facts about the section on why accuracies differ: each difference in its panel and place, in its count, and in no script."""

import html
import http.client
import re
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from edgemeter.agent.contract.kept_predictions import KeptAnswer, KeptObject, KeptPhotograph, KeptPredictions, pack
from edgemeter.agent.contract.record_accuracy import PackedPredictions
from edgemeter.collector.web import one_file
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.pair import pair_view
from edgemeter.collector.web.photograph_folder import PhotographFolder
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.run import run_view
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.axe import axe_script, serious
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.ledgers import fill
from tests.fixtures.one_file import opened
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import indexed, served, view_context

CAT, DOG = 0, 1
PLACE = "(one) => { const box = one.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; }"
# An object that both find, a small one that B misses, a large one that has moved to the right, one that is a cat to B.
TRUTH = (
    KeptObject(CAT, 100, 100, 50, 60),
    KeptObject(DOG, 200, 50, 20, 20),
    KeptObject(CAT, 300, 200, 150, 150),
    KeptObject(DOG, 500, 300, 60, 60),
    KeptObject(DOG, 0, 0, 30, 30, None, ignored=True),
)
OF_A = tuple(
    KeptObject(thing.label, thing.x, thing.y, thing.width, thing.height, score)
    for thing, score in zip(TRUTH, (0.9, 0.8, 0.7, 0.6), strict=False)
)
OF_B = (
    KeptObject(CAT, 100, 100, 50, 60, 0.85),
    KeptObject(CAT, 320, 200, 150, 150, 0.7),
    KeptObject(CAT, 500, 300, 60, 60, 0.5),
    KeptObject(DOG, 10, 400, 40, 40, 0.4),
    KeptObject(DOG, 200, 50, 20, 20, 0.1),
)


def packed(predictions):
    """Return predictions as a record has them."""
    items = predictions.photographs or predictions.answers
    return PackedPredictions(items=len(items), least_score=predictions.least_score, data=pack(predictions))


def predictions_of(objects, name="a.jpg", labels=("cat", "dog")):
    """Return the predictions of one photograph that is as it should be, and of the one above."""
    photographs = (
        KeptPhotograph(name=name, width=640, height=480, truth=TRUTH, found=objects),
        KeptPhotograph(name="b.jpg", width=480, height=640, truth=TRUTH[:1], found=OF_A[:1]),
    )
    return packed(KeptPredictions(labels=labels, least_score=0.05, photographs=photographs))


def two_runs(**options):
    """Return the reference in fp32 and the device in int8, which kept their predictions."""
    return [
        make_reference(id="a", predictions=predictions_of(OF_A, **options)),
        make_run(id="b", precision="int8", predictions=predictions_of(OF_B, **options)),
    ]


def pair_of(runs):
    """Return the page of two runs, and its charts by title."""
    with view_context(runs) as context:
        view = pair_view(context, ViewRequest("pair", {"a": "a", "b": "b"}), CaseFilter())
        return view, {chart.title: chart for chart in context.sheet.charts}


def run_page(run):
    """Return the page of a run."""
    with view_context([run]) as context:
        return run_view(context, ViewRequest("run", {"id": run.id}), CaseFilter())


def photographs(body):
    """Return each photograph of a page as its panels: by heading, (kind, box, text) of its marks; and its caption."""
    pictures = []
    for text in re.findall(r'<figure class="photograph">.*?</figure>', body, re.DOTALL):
        figure = ET.fromstring(text)  # noqa: S314 - our own
        panels = {}
        for panel in figure.iterfind("div/div"):
            svg = panel.find("svg")
            groups = [group for group in svg.iterfind("g") if group.get("class").startswith("mark ")]
            boxes = [[float(group.find("rect[@class='box']").get(name)) for name in ("x", "y", "width", "height")] for group in groups]
            marks = [(group.get("class").removeprefix("mark "), *box) for group, box in zip(groups, boxes, strict=True)]
            panels[panel.find("p").text] = marks, [plate.text for plate in svg.iter("text")]
        pictures.append((panels, figure.find("figcaption").text))
    return pictures


def test_each_difference_is_marked_in_the_panels_of_those_who_have_it():
    """By hand: what B misses is marked in its panel where it is; the crowd and what is found with a low score are nowhere."""
    view, _ = pair_of(two_runs())
    ((panels, caption),) = photographs(view.body)
    truth, a, b = panels.values()
    assert list(panels) == ["Truth", "A: fp32 on onnx, server-1", "B: int8 on onnx, pi-1"]
    places = {
        "both": (100.0, 100.0, 50.0, 60.0), "missed": (200.0, 50.0, 20.0, 20.0), "moved": (300.0, 200.0, 150.0, 150.0),
        "other-class": (500.0, 300.0, 60.0, 60.0),
    }  # fmt: skip
    annotated = sorted((kind, *at) for kind, at in places.items())
    assert sorted(truth[0]) == sorted(a[0]) == annotated
    moved = sorted((kind, *at) for kind, at in {**places, "moved": (320.0, 200.0, 150.0, 150.0)}.items())
    assert sorted(b[0]) == sorted([*moved, ("false", 10.0, 400.0, 40.0, 40.0)])
    assert (sorted(truth[1]), sorted(a[1])) == (["dog", "dog"], ["dog .60", "dog .80"])
    assert set(b[1]) == {"+ dog .40", "\N{MINUS SIGN} dog", "↔ cat .70", "≠ cat .50"}
    assert caption == "a.jpg: 1 missed, 1 of another class, 1 false, 1 moved. 640 x 480 pixels."


def test_differences_are_counted_by_kind_size_and_class():
    """Small: 20 x 20; medium: 40 x 40, 60 x 60 and 50 x 60; large: 150 x 150. Two photographs have the first object."""
    view, _ = pair_of(two_runs())
    tables = {table.name: {row[next(iter(row))]: row for row in table.dicts()} for table in view.tables}
    counts = {kind: [row[name] for name in ("all", "small", "medium", "large")] for kind, row in tables["objects"].items()}
    assert counts == {
        "missed": [1, 1, 0, 0], "other-class": [1, 0, 1, 0], "false": [1, 0, 1, 0], "moved": [1, 0, 0, 1], "both": [2, 0, 2, 0],
    }  # fmt: skip
    assert tables["by_class"]["dog"] == {"class": "dog", "missed": 1, "other_class": 1, "false": 1, "moved": 0, "both": 0}
    assert tables["by_class"]["cat"] == {"class": "cat", "missed": 0, "other_class": 0, "false": 0, "moved": 1, "both": 2}
    assert (
        "B misses 1 that A finds (1 of them it finds with a lower score), calls 1 another class and finds 1 where nothing is." in view.body
    )


def test_one_run_is_compared_with_the_truth():
    """What it misses is marked in the truth, and a box that is not exactly there is found."""
    view = run_page(make_run(id="b", predictions=predictions_of(OF_B)))
    ((panels, caption),) = photographs(view.body)
    truth, device = panels.values()
    assert sorted(kind for kind, *_ in truth[0]) == ["both", "both", "missed", "other-class"]
    assert sorted(kind for kind, *_ in device[0]) == ["both", "both", "false", "other-class"]
    assert ("both", 320.0, 200.0, 150.0, 150.0) in device[0]
    assert set(truth[1]) == {"dog", "\N{MINUS SIGN} dog"}
    assert caption.startswith("a.jpg: 1 missed, 1 of another class, 1 false.")
    # The record as JSON, and its table, have no packed predictions.
    assert predictions_of(OF_B).data not in str((html.unescape(view.body), view.tables))
    rows = {row["kind"]: row["all"] for table in view.tables if table.name == "objects" for row in table.dicts()}
    assert rows == {"missed": 1, "other-class": 1, "false": 1, "both": 3}


def test_groups_are_counted_where_predictions_have_them():
    """Of the photographs of one group, beside those of another."""

    def grouped(objects):
        photos = tuple(
            KeptPhotograph(name=f"{group}.jpg", width=640, height=480, truth=TRUTH[:2], found=of_group, group=group)
            for group, of_group in (("day", OF_A[:2]), ("night", objects))
        )
        return packed(KeptPredictions(labels=("cat", "dog"), least_score=0.05, photographs=photos))

    view, _ = pair_of([make_reference(id="a", predictions=grouped(OF_A[:2])), make_run(id="b", predictions=grouped(()))])
    (table,) = [table for table in view.tables if table.name == "by_group"]
    assert table.dicts() == [{"group": "night", "missed": 2, "both": 0}, {"group": "day", "missed": 0, "both": 2}]


def test_items_of_a_classifier_stand_in_a_table():
    """They have no boxes; those in which B is worse come first."""

    def answers(*best):
        items = tuple(KeptAnswer(name=f"{number}.png", truth=CAT, best=((label, score),)) for number, (label, score) in enumerate(best))
        return packed(KeptPredictions(labels=("cat", "dog"), least_score=0.0, answers=items))

    runs = [make_reference(id="a", predictions=answers((CAT, 0.9), (CAT, 0.8), (DOG, 0.7), (CAT, 0.6))),
            make_run(id="b", predictions=answers((CAT, 0.9), (DOG, 0.6), (CAT, 0.5), (DOG, 0.4)))]  # fmt: skip
    view, charts = pair_of(runs)
    items = view.body.partition("Items that differ")[2].partition("</table>")[0]
    assert [re.findall(r">([^<]+)</td>", row) for row in items.split("<tr>")[2:]] == [
        ["1.png", "cat", "cat 0.80", "dog 0.60"], ["3.png", "cat", "cat 0.60", "dog 0.40"], ["2.png", "cat", "dog 0.70", "cat 0.50"],
    ]  # fmt: skip
    assert photographs(view.body) == []
    assert {"Reliability of the scores", "Confusions: B against A"} <= set(charts)
    assert "Precision over recall" not in charts


def test_runs_without_predictions_name_the_option_that_keeps_them():
    """In one line; a run that could not keep them says why; what is damaged, or of other photographs, is a line too."""
    damaged = PackedPredictions(items=1, least_score=0.05, data="damaged")
    a, _ = two_runs()
    cases = (
        ([make_reference(id="a"), make_run(id="b")], "Run a of tiny-detector keeps no predictions: measure it with --keep-predictions."),
        ([a, make_run(id="b")], "Run b of tiny-detector keeps no predictions"),
        ([a, make_run(id="b", predictions_reason="no ground truth")], "keeps no predictions: no ground truth."),
        ([a, make_run(id="b", predictions=damaged)], "The kept predictions are damaged"),
        ([a, make_run(id="b", predictions=predictions_of(OF_B, name="c.jpg"))], "The runs are of different photographs"),
    )
    for runs, words in cases:
        with table_row(words):
            view, _ = pair_of(runs)
            section = re.search(r'<section id="why">(.*?)</section>', view.body, re.DOTALL)[1]
            assert words in section
            assert section.count("<p") == 1
            assert {table.name for table in view.tables} == {"figures", "differences"}
    assert "keeps no predictions: measure it with" in run_page(make_run(id="b")).body
    assert 'id="why"' not in run_page(make_run(id="b", ap=None)).body


def test_names_that_are_markup_stay_text(tmp_path):
    """Of a photograph and of its labels, with and without a folder of photographs."""
    runs = two_runs(name=MARKUP, labels=(MARKUP, f"{MARKUP}2"))
    for body in (pair_of(runs)[0].body, run_page(runs[1]).body):
        assert "<img" not in body
        assert "<script>" not in body
        assert photographs(body)[0][1].startswith(MARKUP)
    with indexed(runs) as index:
        text = one_file.whole_page(index, TrendEvents(), FileChoice(photographs=PhotographFolder(tmp_path)))
    assert "<img" not in opened(text).replace(">", "<")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the first photograph, and a file beside it."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (640, 480), "olive").save(tmp_path / "photos" / "a.jpg")
    Image.new("RGB", (640, 480), "olive").save(tmp_path / "photos" / "other.jpg")
    Image.new("RGB", (640, 480), "red").save(tmp_path / "secret.jpg")
    return PhotographFolder(tmp_path / "photos")


def get(server, address):
    """Return status, type and body of what is served there."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    try:
        connection.request("GET", f"/{address}")
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def test_only_photographs_that_a_run_names_and_the_folder_has_are_served(tmp_path, folder):
    """Not the other file in the folder, nor the one beside it, even where predictions name that; and none without a folder."""
    outside = [make_run(id="out", predictions=predictions_of(OF_B, name="../secret.jpg"))]
    ledger = fill(tmp_path / "ledger.sqlite", [*two_runs(), *outside])
    with served(ledger, photographs=folder) as server:
        status, kind, body = get(server, "photograph?run=a&name=a.jpg")
        assert (status, kind, body[:2]) == (200, "image/jpeg", b"\xff\xd8")
        for run, name in (
            ("a", "other.jpg"),
            ("a", "b.jpg"),
            ("out", "../secret.jpg"),
            ("a", "../secret.jpg"),
            ("nobody", "a.jpg"),
            ("a", ""),
        ):
            with table_row(run, name):
                status, kind, _ = get(server, f"photograph?run={run}&name={quote(name)}")
                assert (status, kind) == (404, "text/html; charset=utf-8")
        assert b"/photograph?name=a.jpg&amp;run=a" in get(server, "pair?a=a&b=b")[2]
    with served(ledger) as server:
        assert get(server, "photograph?run=a&name=a.jpg")[0] == 404
        assert b"`--photographs FOLDER`" in get(server, "pair?a=a&b=b")[2]
    with served(ledger, photographs=folder, token="secret") as server:
        assert get(server, "photograph?run=a&name=a.jpg")[0] == 401


def test_a_file_holds_the_pair_with_its_photographs(folder):
    """Once in each view; the runs refer to the pair. A photograph that is not in the folder is named so."""
    a, b = two_runs()
    with indexed([b, a]) as index:
        text = opened(one_file.whole_page(index, TrendEvents(), FileChoice(photographs=folder)))
    pair = text.partition('data-address="pair?a=a&amp;b=b"')[2].partition("<template")[0]
    assert pair.count("data:image/jpeg;base64,") == 1
    assert [svg.count('<use href="#photograph-0"') for svg in pair.split("<svg")].count(1) == 2
    run = text.partition('data-address="run?id=b"')[2].partition("<template")[0]
    assert 'href="#/pair?a=a&amp;b=b"' in run
    assert "<form" not in run.partition("Compare with")[2].partition("</section>")[0]


def test_a_file_of_two_runs_opens_with_why_they_differ():
    """Of three it opens with the overview, and holds the pairs of each with the reference."""
    runs = two_runs()
    with indexed(runs) as index:
        text = one_file.whole_page(index, TrendEvents(), FileChoice())
    assert text.count('data-address="pair?a=a&amp;b=b"') == 1
    assert "Why the accuracies differ" in text.partition("<template")[0]
    with indexed([*runs, make_run("pi-2", id="c", precision="int8", predictions=predictions_of(OF_B))]) as index:
        text = one_file.whole_page(index, TrendEvents(), FileChoice())
    assert set(re.findall('data-address="(pair[^"]*)"', text)) == {"pair?a=a&amp;b=b", "pair?a=a&amp;b=c"}
    assert "Why the accuracies differ" not in text.partition("<template")[0]


@pytest.mark.chromium
@pytest.mark.parametrize(("width", "is_phone"), [(1400, False), (390, True)])
def test_panels_stand_side_by_side_and_on_a_phone_below_each_other(browser, tmp_path, folder, width, is_phone):
    """Each is as wide and as high as the photograph asks, and holds it; the boxes lie where they should on the screen."""
    with served(fill(tmp_path / "ledger.sqlite", two_runs()), photographs=folder) as server:
        page = browser.open(f"{server.url}pair?a=a&b=b", width=width)
        page.drawn()
        assert page.fits()
        panels = page.run(f"[...document.querySelectorAll('.photograph svg')].map({PLACE})")
        lefts, tops = ([panel[side] for panel in panels] for side in (0, 1))
        assert len(panels) == 3
        assert (len(set(lefts)), len(set(tops))) == ((1, 3) if is_phone else (3, 1))
        for x, _, across, down in panels:
            assert across / down == pytest.approx(640 / 480, rel=0.01)
            assert 0 <= x < x + across <= width
        box = page.run(f"({PLACE})(document.querySelectorAll('.photograph svg')[2].querySelector('.mark.false .box'))")
        x, y, across, _ = panels[2]
        scale = across / 640
        assert box == pytest.approx([x + 10 * scale, y + 400 * scale, 40 * scale, 40 * scale], abs=3)
        assert [url for url in page.requests() if "/photograph?" in url] == [f"{server.url}photograph?name=a.jpg&run=a"]
        assert page.run("getComputedStyle(document.querySelector('.mark.missed .box')).strokeDasharray") != "none"
        page.run(axe_script())
        assert serious(page.run("axe.run(document, {resultTypes: ['violations']})")) == []
        assert page.complaints() == []
        page.close()


@pytest.mark.chromium
def test_a_report_shows_the_photographs_without_a_network(browser, tmp_path, folder):
    """They are within the file; each panel shows the one copy."""
    path = tmp_path / "report.html"
    with indexed(two_runs()) as index:
        path.write_text(one_file.whole_page(index, TrendEvents(), FileChoice(photographs=folder)), encoding="utf-8")
    page = browser.open(f"{path.as_uri()}#/pair?a=a&b=b", offline=True)
    page.drawn()
    pictures = page.run(f"[...document.querySelectorAll('.photograph svg')].map((one) => ({PLACE})(one.querySelector('image, use')))")
    assert [picture[2] > 100 for picture in pictures] == [True] * 3
    assert page.complaints() == []
    page.close()


@pytest.mark.chromium
def test_hostile_names_do_nothing_in_a_browser(browser, tmp_path):
    """As label and as name of a photograph."""
    with served(fill(tmp_path / "ledger.sqlite", two_runs(name=MARKUP, labels=(MARKUP, f"{MARKUP}2")))) as server:
        page = browser.open(f"{server.url}pair?a=a&b=b")
        page.drawn()
        assert page.run("document.querySelectorAll('img').length") == 0
        assert page.run("document.title") != "taken"
        assert page.complaints() == []
        page.close()
