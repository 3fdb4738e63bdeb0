import csv
import io
import json
import re

import pytest

from edgemeter.collector.published import table_file
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.reference.imported import ReferenceStore
from edgemeter.collector.reference.judged import JudgedReferences
from edgemeter.collector.reference.mlperf import LEGEND
from edgemeter.collector.web import one_file, published_view
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.site import held_exports, show
from edgemeter.collector.web.view import ServedLinks, ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.one_file import opened
from tests.fixtures.record_factory import make_environment
from tests.fixtures.served_page import indexed, served

PI = "Raspberry Pi 5 Model B Rev 1.0"


def make_row(**changes):
    """Return a published row; `changes` are its fields."""
    fields = {
        "source": "A guide",
        "version": "8.3.39",
        "date": "2026-11-02",
        "address": "https://example.org/guide",
        "model": "tiny-detector",
        "device": PI,
        "figure": "latency",
        "value": 20.0,
        "unit": "ms",
        "conditions": "640 x 640, batch 1",
        "precision": "fp32",
        "runtime": "onnx",
    }
    return PublishedRow(**(fields | changes))


IMPOSSIBLE = make_row(
    model="Llama 3.2 3B", device="Raspberry Pi 5", figure="tokens", value=20.0, unit="t/s", precision="Q4_0", runtime=None
)


def store_of(folder, *rows):
    """Return the store of these rows in `folder`."""
    (folder / "references").mkdir(exist_ok=True)
    (folder / "references" / "published.toml").write_text("\n".join(map(table_file.to_toml, rows)), encoding="utf-8")
    return ReferenceStore(folder / "references")


def view_of(store, runs, **fields):
    """Return the view of a store beside these runs; `fields` are of its address."""
    with indexed(runs) as index, index.reading() as connection:
        references = JudgedReferences(store)
        context = ViewContext(connection, index.source, ServedLinks(), TrendEvents(), references=references)
        return show(context, ViewRequest("published", fields))


def own_runs(p50_ms=10.0):
    """Return three runs of a detector on a Raspberry Pi 5."""
    return [make_run(p50_ms=p50_ms * factor, environment=make_environment(board=PI)) for factor in (0.99, 1.0, 1.01)]


def rows_of(view, name="published"):
    """Return the rows of a table of the view."""
    (table,) = [table for table in view.tables if table.name == name]
    return table.dicts()


def test_each_row_has_its_verdict_the_sentence_and_the_source(tmp_path):
    """On the page as in what is exported; the line on top says what these figures are."""
    view = view_of(store_of(tmp_path, IMPOSSIBLE), own_runs())
    assert view.lead == "Figures that others state, judged by physics; never ranked with measured ones."
    (row,) = [row for row in rows_of(view) if row["source"] == "A guide"]
    assert row["verdict"] == "impossible"
    assert "17.1 GB/s" in row["sentence"]
    for text in ('<span class="badge impossible">impossible</span>', "20 t/s", 'href="https://example.org/guide"', "8.3.39, 2026-11-02"):
        assert text in view.body


def test_shipped_figures_are_there_without_a_store(tmp_path):
    """Whoever opens the page for the first time has something to compare with."""
    assert len(rows_of(view_of(ReferenceStore(tmp_path / "none"), own_runs()))) > 10


def test_a_figure_of_an_own_case_has_its_ratio_and_the_way_to_the_case(tmp_path):
    """20 ms were published and 10 ms measured."""
    view = view_of(store_of(tmp_path, make_row()), own_runs())
    (compared,) = [row for row in rows_of(view, "published_comparisons") if row["kind"] == "own run"]
    assert compared["ratio"] == pytest.approx(2.0)
    assert re.search(r'<b>2\.00x[^<]*</b> own run: <a href="/trend\?device=pi-1&amp;fleet=lab&amp;model=tiny-detector">', view.body)


def test_the_filters_leave_what_they_name(tmp_path):
    """Model, device, verdict and source; what is left of a filter that fits nothing is said."""
    store = store_of(tmp_path, IMPOSSIBLE, make_row())
    for fields in ({"verdict": "impossible"}, {"model": "Llama 3.2 3B", "source": "A guide"}):
        assert [row["model"] for row in rows_of(view_of(store, own_runs(), **fields))] == ["Llama 3.2 3B"]
    assert {row["device"] for row in rows_of(view_of(store, own_runs(), device=PI))} == {PI}
    assert "No published figure matches" in view_of(store, own_runs(), device="nothing").body
    assert {field.name for field in view_of(store, own_runs()).inputs} == {"model", "device", "verdict", "source"}


def test_results_of_mlperf_stand_apart_with_the_footnote(tmp_path):
    """MLCommons asks for it, and nothing of them is among the other figures."""
    row = make_row(source="MLPerf Inference v5.0 edge", model="resnet", figure="throughput", value=500.0, unit="per s")
    view = view_of(store_of(tmp_path, row), own_runs(), source=row.source)
    assert rows_of(view) == []
    assert [entry["model"] for entry in rows_of(view, "published_mlperf")] == ["resnet"]
    assert view.body.count(LEGEND.split(".")[1]) == 1


def test_the_rows_are_judged_again_only_where_something_changed(tmp_path, monkeypatch):
    """A run, or a file of the store; a reader who comes back waits for nothing."""
    judged = []
    monkeypatch.setattr("edgemeter.collector.reference.judged.judge", lambda rows, _: judged.append(len(rows)) or [])
    store = store_of(tmp_path, make_row())
    references = JudgedReferences(store)
    for version in ("1", "1", "2"):
        references.of(version, list)
    assert len(judged) == 2
    store_of(tmp_path, make_row(), IMPOSSIBLE)
    references.of("2", list)
    assert judged[-1] == judged[0] + 1


def test_a_damaged_store_is_named_and_stops_no_report(tmp_path):
    """The view says which file; the file of all views is written."""
    store = store_of(tmp_path, make_row())
    (store.path / "published.toml").write_text("[[row")
    assert "published.toml" in view_of(store, own_runs()).body


def test_the_served_page_has_csv_and_json_and_knows_when_they_are_stale(tmp_path):
    """An added row changes the tag by which a browser asks again."""
    store = store_of(tmp_path, make_row())
    with served(own_runs(), references=JudgedReferences(store)) as server:
        request = ViewRequest("published", {"source": "A guide"})
        rows = list(csv.DictReader(io.StringIO(server.answer(request, "csv").body.decode())))
        tables = json.loads(server.answer(request, "json").body)["tables"]
        assert [row["value"] for row in rows] == ["20.0"]
        assert [row["canonical_value"] for row in tables["published"]] == [20.0]
        tag = server.tag(request, "")
        store_of(tmp_path, make_row(), IMPOSSIBLE)
        assert server.tag(request, "") != tag


def test_the_view_is_in_the_file_that_works_offline_unless_it_is_of_some_cases(tmp_path, monkeypatch):
    """Others call models otherwise, so that a file of one model would hold none of them."""
    monkeypatch.setenv("EDGEMETER_REFERENCES", str(store_of(tmp_path, make_row()).path))
    with indexed(own_runs()) as index:
        every_view = opened(one_file.whole_page(index, TrendEvents(), FileChoice()))
        narrowed = opened(one_file.whole_page(index, TrendEvents(), FileChoice(CaseFilter(model="tiny-detector"))))
    assert '<template data-address="published">' in every_view
    assert 'href="#/published"' in every_view
    assert "#/published" not in narrowed


def test_what_a_source_states_stays_text(tmp_path):
    """It becomes no element, and an address that is not of the web no link."""
    view = view_of(store_of(tmp_path, make_row(source=MARKUP, model=MARKUP, version=MARKUP)), own_runs())
    assert "<img" not in view.body
    assert "is not an http(s):// address" in view_of(store_of(tmp_path, make_row(address="javascript:alert(1)")), own_runs()).body
    assert held_exports(view, ViewRequest("published"))


def test_more_rows_than_anybody_reads_are_counted(tmp_path, monkeypatch):
    """The rest is in the export."""
    monkeypatch.setattr(published_view, "SHOWN", 3)
    view = view_of(store_of(tmp_path, *(make_row(version=str(number)) for number in range(5))), own_runs(), source="A guide")
    assert view.body.count('<tr data-model="') == 3
    assert "2 more: pick" in view.body
    assert len(rows_of(view)) == 5
