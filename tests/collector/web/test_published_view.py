import csv
import io
import json

from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.web import one_file, published_view
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.queries import CaseFilter, ViewContext
from edgemeter.collector.web.site import held_exports, show
from edgemeter.collector.web.view import Links, ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.one_file import opened
from tests.fixtures.published_rows import folder_of, published_row
from tests.fixtures.record_factory import make_environment
from tests.fixtures.served_page import page_of, source_from

LATENCY = published_row(
    "latency_p50_ms", 20.0, source="A guide", version="8.3.39", precision="fp32", runtime="onnx"
)
IMPOSSIBLE = published_row(
    "generation_decode_tokens_per_s",
    20.0,
    "Llama 3.2 3B",
    source="A guide",
    precision="Q4_0",
    version="8.3.39",
)


def view_of(folder, **fields):
    """Return the view of published figures next to own runs; `fields` are of its address."""
    book = book_of(source_from(own_runs()))
    context = ViewContext(book, Links(), TrendEvents(), published=folder)
    return show(context, ViewRequest("published", fields))


def own_runs():
    return [
        make_run(p50_ms=value, environment=make_environment(board="Raspberry Pi 5 Model B Rev 1.0"))
        for value in (9.9, 10.0, 10.1)
    ]


def rows_of(view, name="published"):
    (table,) = [table for table in view.tables if table.name == name]
    return table.dicts()


def test_each_row_has_its_verdict_the_sentence_own_runs_and_the_source(tmp_path):
    """The page and the exports have them, and the line on top says what these figures are."""
    view = view_of(folder_of(tmp_path, IMPOSSIBLE, LATENCY), source="A guide")
    assert view.lead == published_view.LEAD
    impossible, latency = rows_of(view)
    assert (impossible["verdict"], latency["canonical_value"]) == ("impossible", 20.0)
    assert "17.1 GB/s" in impossible["sentence"]
    assert latency["own_runs"][0].startswith("2.00x the 10")
    assert [
        row["limit"] for row in rows_of(view, "published_findings") if row["law"] == "memory"
    ] == [17.1]
    day = '<span class="whole">2026-11-20</span>'
    for text in (
        '<span class="badge impossible">impossible</span>',
        'href="https://example.org/page"',
        f"8.3.39, {day}",
        "2.00x",
    ):
        assert text in view.body


def test_the_filters_leave_what_they_name(tmp_path):
    """Words, model, device, verdict and source filter the rows.

    MLPerf's results are apart. A filter that fits nothing is reported.
    """
    folder = folder_of(tmp_path, IMPOSSIBLE, LATENCY)
    for fields in (
        {"verdict": "impossible"},
        {"model": "Llama 3.2 3B", "source": "A guide"},
        {"q": "q4_0  LLAMA"},
        {"q": "gb/s guide"},
    ):
        assert [row["model"] for row in rows_of(view_of(folder, **fields))] == ["Llama 3.2 3B"]
    row = published_row("throughput_per_s", 500.0, "resnet", source="MLPerf Inference v5.0")
    view = view_of(folder_of(tmp_path / "mlperf", row), source=row.source)
    assert rows_of(view) == []
    assert [entry["model"] for entry in rows_of(view, "published_mlperf")] == ["resnet"]
    view = view_of(folder, device="nothing")
    assert "No published figure matches" in view.body
    assert {field.name for field in view.inputs} == {"q", "model", "device", "verdict", "source"}


def test_a_search_sees_also_what_is_not_listed(tmp_path):
    """The form searches all figures, as the page lists only the first ones.

    The page's own search would see only these.

    A file lists all.
    """
    rows = [
        published_row("latency_p50_ms", 20.0 + number, f"model-{number:02}")
        for number in range(published_view.SHOWN + 3)
    ]
    folder = folder_of(tmp_path, *rows)
    assert "model-14" not in view_of(folder).body
    searched = view_of(folder, q="MODEL-14")
    assert "model-14" in searched.body
    assert [row["model"] for row in rows_of(searched)] == ["model-14"]
    assert 'id="published" data-by-form' in searched.body
    book = book_of(source_from(own_runs()))
    context = ViewContext(book, Links({"published"}), TrendEvents(), published=folder)
    of_file = show(context, ViewRequest("published"))
    assert "data-by-form" not in of_file.body
    assert {field.name for field in of_file.inputs} == {"model", "device", "verdict", "source"}


def test_the_served_page_has_csv_and_json_and_knows_when_they_are_stale(tmp_path):
    """An added row changes the tag by which a browser asks again."""
    folder = folder_of(tmp_path, LATENCY)
    server = page_of(own_runs(), published=folder)
    request = ViewRequest("published", {"source": "A guide"})
    rows = list(csv.DictReader(io.StringIO(server.answer(request, "csv").body.decode())))
    tables = json.loads(server.answer(request, "json").body)["tables"]
    assert [row["value"] for row in rows] == ["20.0"]
    assert [row["canonical_value"] for row in tables["published"]] == [20.0]
    tag = server.tag(request, "")
    folder_of(tmp_path, LATENCY, IMPOSSIBLE)
    assert server.tag(request, "") != tag


def test_the_view_is_in_the_file_that_works_offline_unless_it_is_of_some_cases(
    tmp_path, monkeypatch
):
    """Other names for models would leave a file of one model without any of them."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    folder_of(tmp_path / "references", LATENCY)
    book = book_of(source_from(own_runs()))
    every_view = opened(one_file.whole_page(book, TrendEvents(), FileChoice()))
    narrowed = opened(
        one_file.whole_page(book, TrendEvents(), FileChoice(CaseFilter(model="tiny-detector")))
    )
    assert '<template data-address="published">' in every_view
    assert "#/published" not in narrowed


def test_what_a_source_states_stays_text(tmp_path):
    """The text becomes no element."""
    view = view_of(
        folder_of(
            tmp_path,
            *(
                published_row("latency_p50_ms", 20.0, **{name: MARKUP})
                for name in ("source", "model", "version")
            ),
        )
    )
    assert "<img" not in view.body
    assert held_exports(view, ViewRequest("published"))
