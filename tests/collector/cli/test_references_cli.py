import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.references import references
from edgemeter.collector.published.shipped_rows import shipped_rows
from edgemeter.collector.reference import table
from edgemeter.collector.reference.imported import ListingRequest, ReferenceStore, listing_of
from edgemeter.collector.reference.mlperf import APART, LEGEND
from tests.fixtures.comparison_factory import document, make_reference, make_run
from tests.fixtures.mlperf_factory import make_row, v60, write
from tests.fixtures.rows import table_row


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a home of its own, with one official file in it."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    write(tmp_path / "summary_results.json", v60(Model="yolo-99"), make_row(), make_row(ID="5.1-0062", errors=1))
    return tmp_path


def run(*arguments):
    """Run the command; an error of ours comes through."""
    return CliRunner().invoke(references, [str(argument) for argument in arguments], catch_exceptions=False)


def test_an_official_file_is_imported_and_listed_apart_with_its_footnotes(folder):
    """The source is the repository that its rows name."""
    result = run("import", folder / "summary_results.json", "--retrieved", "2026-11-02")
    assert result.exit_code == 0
    assert (
        "imported 1 result of v6.0, 0 with measured power; retrieved from https://github.com/mlcommons/inference_results_v6.0 2026-11-02"
        in result.stdout
    )
    assert "1 result left out" in result.stderr
    listed = run("list")
    assert "not ranked" in listed.stdout
    assert "MLPerf™ v6.0 Inference Closed yolo-99 Offline (datacenter). Retrieved from" in listed.stdout
    assert LEGEND in listed.stdout


def test_the_three_kinds_are_blocks_of_their_own_and_only_the_measured_rank(folder):
    """The rows that ship are there from the beginning; a device's own runs are no reference."""
    store = folder / "runs.json"
    store.write_bytes(document(make_run(), make_reference(), make_reference()))
    run("import", folder / "summary_results.json")
    blocks = json.loads(run("list", "--ledger", store, "--json").stdout)
    assert {name: (block["ranks"], len(block["rows"])) for name, block in blocks.items()} == {
        "measured": (True, 1),
        "imported": (False, 2),
        "published": (False, len(shipped_rows())),
    }
    assert blocks["measured"]["rows"][0]["device"] == "server-1"
    assert blocks["measured"]["rows"][0]["energy_provenance"] == "measured"
    assert all(row["footnote"].endswith(LEGEND) for row in blocks["imported"]["rows"])


@pytest.mark.usefixtures("folder")
def test_published_results_of_mlperf_are_a_block_of_their_own_with_footnotes():
    """Beside other published figures they would be compared with them, which MLCommons forbids."""
    listed = run("list", "--kind", "published").stdout
    elsewhere, title, apart = listed.partition("MLPerf™, single published results, not ranked")
    assert "Published elsewhere, not ranked" in elsewhere
    assert title
    assert "MLPerf" not in elsewhere
    assert APART in apart
    assert LEGEND in apart
    rows = json.loads(run("list", "--json").stdout)["published"]["rows"]
    assert {row["source"].startswith("MLPerf") for row in rows if "footnote" in row} == {True}
    assert sum("footnote" in row for row in rows) == sum(row.is_mlperf for row in shipped_rows())


def test_a_list_is_narrowed_by_parts_of_names(folder):
    """Upper and lower case are the same to `--model`."""
    run("import", folder / "summary_results.json")
    document = json.loads(run("list", "--model", "YOLO-99", "--json").stdout)
    assert [row["id"] for row in document["imported"]["rows"]] == ["6.0-0028"]


def test_one_entry_is_shown_with_all_that_is_known(folder):
    """By its official ID; an unknown one is an error."""
    run("import", folder / "summary_results.json")
    output = run("show", "6.0-0028").stdout
    assert output.startswith("imported, not ranked")
    assert "footnote: MLPerf™ v6.0" in output
    with pytest.raises(ConfigError, match=r"no reference has the key 'nothing'"):
        run("show", "nothing")


def test_a_figure_is_added_by_options_and_shown(folder):
    """And kept in a file that people can edit."""
    options = {
        "source": "A guide", "version": "1", "date": "2026-11-02", "address": "https://example.org", "model": "m", "device": "Pi 5",
        "metric": "latency", "value": 88.0, "unit": "ms", "conditions": "batch 1",
    }  # fmt: skip
    result = run("add", *(part for name, value in options.items() for part in (f"--{name}", value)))
    assert "m on Pi 5: latency 88 ms" in result.stdout
    assert (folder / "home" / "references" / "published.toml").read_text().startswith("[[row]]\n")
    assert "88" in run("list", "--device", "pi 5").stdout


def test_a_figure_without_its_source_is_refused(folder):
    """Nothing is kept; neither is a call with nothing in it."""
    with pytest.raises(ConfigError, match="the figure is incomplete"):
        run("add", "--model", "m", "--value", "3")
    assert run("add").exit_code == 2
    assert not (folder / "home" / "references").exists()


def test_a_truncated_file_leaves_what_was_imported_before(folder):
    """A file that ends too early is refused as a whole: no stored file changes."""
    run("import", folder / "summary_results.json")
    before = sorted((folder / "home" / "references").iterdir())
    text = (folder / "summary_results.json").read_text()
    (folder / "summary_results.json").write_text(text[: len(text) // 2])
    with pytest.raises(ConfigError, match=r"line \d+"):
        run("import", folder / "summary_results.json")
    assert sorted((folder / "home" / "references").iterdir()) == before
    assert "yolo-99" in run("list").stdout


def test_another_file_of_a_round_replaces_the_earlier_one_only_where_that_is_asked_for(folder):
    """It says what would change; the same file again changes nothing."""
    official = folder / "summary_results.json"
    run("import", official, "--retrieved", "2026-10-01")
    assert "v5.1 was already imported from this file (retrieved 2026-10-01): the same results" in run("import", official).stderr
    before = {path: path.read_bytes() for path in (folder / "home" / "references").iterdir()}
    other = write(folder / "other.json", make_row(Performance_Result=1.5), make_row(Scenario="Server"), v60(Model="yolo-95"))
    message = r"v5\.1 was already imported from another file .*1 new result, 1 changed, 0 gone: add --replace"
    with pytest.raises(ConfigError, match=message):
        run("import", other)
    assert {path: path.read_bytes() for path in before} == before, "nothing of it is taken, of no round"
    result = run("import", other, "--replace")
    assert "is replaced: 1 new result, 1 changed, 0 gone" in result.stderr
    assert "is replaced: 1 new result, 0 changed, 1 gone" in result.stderr
    assert len(json.loads(run("list", "--json").stdout)["imported"]["rows"]) == 3


def test_a_repeated_line_is_reported(folder):
    """The repeated line is named, the first one is imported."""
    result = run("import", write(folder / "twice.json", make_row(), make_row()))
    assert "left out: line " in result.stderr
    assert "repeats line 2" in result.stderr
    assert "imported 1 result of v5.1" in result.stdout


def test_a_damaged_import_is_put_right_by_the_official_file(folder):
    """With --replace, as the error says."""
    run("import", folder / "summary_results.json")
    (folder / "home" / "references" / "mlperf-v6.0.json").write_text("{")
    with pytest.raises(ConfigError, match=r"is damaged .*--replace"):
        run("import", folder / "summary_results.json")
    run("import", folder / "summary_results.json", "--replace")
    assert "yolo-99" in run("list").stdout


def test_a_wrong_date_and_a_damaged_ledger_are_errors_of_ours(folder):
    """Each names the remedy."""
    with pytest.raises(ConfigError, match="write YYYY-MM-DD"):
        run("import", folder / "summary_results.json", "--retrieved", "yesterday")
    run("import", folder / "summary_results.json")
    (folder / "home" / "references" / "mlperf-v6.0.json").write_text("{")
    with pytest.raises(ConfigError, match=r"is damaged .* import the official file again"):
        run("list")


def test_a_reference_is_shown_in_words(folder):
    """No Python in it, no digit that nothing bears."""
    run("import", folder / "summary_results.json", "--retrieved", "2026-11-02")
    output = run("show", "5.1-0061").stdout
    assert "{" not in output
    assert "False" not in output
    assert "is_inferred: no" in output


def test_nothing_was_retrieved_tomorrow(folder):
    """A date that is in the future is a slip."""
    result = run("import", folder / "summary_results.json", "--retrieved", "2999-01-01")
    assert result.exit_code == 2
    assert "in the future" in result.stderr


@pytest.mark.usefixtures("influx_place")
def test_an_empty_list_is_reported():
    """Silence would look like a fault."""
    result = run("list", "--kind", "published", "--model", "nonesuch")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no reference matches" in result.stderr


def test_a_narrow_terminal_drops_columns_and_reports_that(folder):
    """Sixteen columns of four characters can be read by nobody."""
    run("import", folder / "summary_results.json", "--retrieved", "2026-11-02")
    entries = listing_of([], ReferenceStore(folder / "home" / "references").imports(), [], ListingRequest())
    for width in (80, 120):
        with table_row(width):
            console = Console(width=width, file=io.StringIO(), record=True)
            table.show(entries, console, 20)
            text = console.export_text()
            assert "not shown on so narrow a terminal: " in text
            assert "5.1-0061" in text
            assert "yolo-99" in text
