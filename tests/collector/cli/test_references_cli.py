import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.references import references
from edgemeter.collector.published import reader_names
from edgemeter.collector.published.shipped_rows import shipped_rows
from edgemeter.collector.reference import table
from edgemeter.collector.reference.imported import ListingRequest, ReferenceStore, listing_of
from edgemeter.collector.reference.mlperf import APART, LEGEND
from tests.fixtures.comparison_factory import day_by_day, document, make_reference, make_run, no_energy
from tests.fixtures.mlperf_factory import make_row, v60, write
from tests.fixtures.published_defaults import fixtures_of
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
    assert "write YYYY-MM-DD" in run("import", folder / "summary_results.json", "--retrieved", "yesterday").stderr
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


OWN_TOML = """
[[row]]
source = "a guide"
version = "8.3.39"
date = "2026-11-20"
address = "https://example.org/guide"
model = "tiny-detector"
device = "Raspberry Pi 5"
figure = "latency"
value = {value}
unit = "ms"
conditions = "as the guide states them"
"""
CLAIM = "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s"


@pytest.fixture
def judged(folder):
    """Return what runs `judge` on a figure of 530 ms beside own runs of six days at 10 ms."""
    (folder / "guide.toml").write_text(OWN_TOML.format(value=530.2))
    runs = day_by_day([make_run(p50_ms=p50_ms, **no_energy()) for p50_ms in (10.0, 10.02, 9.98, 10.01, 9.99, 10.0)])
    (folder / "runs.json").write_bytes(document(*runs))
    return lambda *arguments: run("judge", folder / "guide.toml", "--ledger", folder / "runs.json", *arguments)


def test_a_file_is_judged_against_own_runs(judged):
    """Verdicts first, then comparisons, then one line that counts both."""
    result = judged()
    assert result.exit_code == 0
    assert "contradicts" in result.stdout
    assert "530.2 ms is 53.0 times the 10.0 ms of tiny-detector fp32 on onnx, pi-1" in result.stdout
    assert result.stdout.splitlines()[-1] == "1 row: 0 impossible, 1 unclear, 0 plausible; 1 contradicts own runs"


@pytest.mark.usefixtures("folder")
def test_a_ledger_without_a_run_is_an_error_where_it_is_named_and_a_note_where_it_is_not():
    """Of a judgement without own runs a reader must know that there were none to hold against."""
    SqliteLedger(default_path()).close()
    judged = run("judge", "--claim", CLAIM)
    assert judged.exit_code == 0
    assert judged.stderr.startswith("judged without own runs: ")
    assert "impossible" in judged.stdout
    with pytest.raises(UnavailableError, match="has no run yet"):
        run("judge", "--claim", CLAIM, "--ledger", default_path())
    default_path().unlink()
    assert run("judge", "--claim", CLAIM).stderr == ""


def test_a_judgement_as_json_has_every_side_of_every_check(judged):
    """Value, limit and unit of each piece of evidence, the ratio and bounds of each comparison, and what was left out."""
    answer = json.loads(judged("--json").stdout)
    (row,) = answer["rows"]
    assert {"rule", "state", "sentence", "unit"} <= set(row["evidence"][0])
    assert row["comparisons"][0]["outcome"] == "contradicts"
    assert row["comparisons"][0]["low"] < row["comparisons"][0]["ratio"] < row["comparisons"][0]["high"]
    assert (row["canonical_value"], row["canonical_unit"], answer["left_out"]) == (530.2, "ms", [])


def test_a_judgement_as_markdown_is_ready_for_an_issue(judged):
    """Two tables and a line."""
    text = judged("--format", "markdown").stdout
    assert text.count("|---") >= 2
    assert "| contradicts |" in text


def test_a_claim_is_judged_with_its_arithmetic():
    """20 tokens of 1.6 GB a second are 32 GB/s; its memory gives about 17."""
    result = run("judge", "--claim", CLAIM)
    assert result.exit_code == 0
    assert result.stdout.startswith("impossible: Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s decoding rate")
    assert "32.1 GB/s" in result.stdout
    assert "1 row: 1 impossible" in result.stdout


def test_a_judgement_of_nothing_given_is_of_what_is_kept(folder):
    """The figures that ship and that were added."""
    (folder / "guide.toml").write_text(OWN_TOML.format(value=81.2))
    run("add", folder / "guide.toml")
    rows = json.loads(run("judge", "--json").stdout)["rows"]
    assert [row["source"] for row in rows if row["model"] == "tiny-detector"] == ["a guide"]


def test_what_cannot_be_judged_is_an_error_of_use(folder):
    """A claim and a file, a claim that is not understood, a file that no reader recognises."""
    assert run("judge", folder / "guide.toml", "--claim", CLAIM).exit_code == 2
    for arguments, message in (
        (("--claim", "fast"), "cannot read the claim 'fast'"),
        ((folder / "absent.csv",), "cannot read"),
    ):
        with table_row(arguments), pytest.raises(ConfigError, match=message):
            run("judge", *arguments)


def test_the_readers_are_listed_with_what_they_read():
    """One line each."""
    rows = json.loads(run("readers", "--json").stdout)
    assert [row["reader"] for row in rows] == reader_names()
    assert all(row["reads"] for row in rows)


@pytest.mark.usefixtures("folder")
def test_what_a_tool_printed_is_judged_with_the_facts_that_it_lacks():
    """llama-bench names neither board nor source; the page that shows it does, by options, or the file's own name stands for it."""
    rows = json.loads(run("judge", fixtures_of("llama_bench")[0], "--device", "Raspberry Pi 5", "--json").stdout)["rows"]
    assert {(row["device"], row["source"], row["conditions"] != "not stated") for row in rows} == {
        ("Raspberry Pi 5", "llama_bench.json", True)
    }
    assert all(row["evidence"] for row in rows)
    without_board = run("judge", fixtures_of("llama_bench")[0])
    assert "missing required field `device`" in without_board.stderr
    assert without_board.stdout == "0 rows: 0 impossible, 0 unclear, 0 plausible\n"


def test_a_table_of_ones_own_is_read_by_its_columns(folder):
    """Fields and figures by the headings."""
    (folder / "mine.csv").write_text("Net,ms,FPS\nYOLOv8n,3.49,286\n")
    columns = [f"--column={column}" for column in ("Net=model", "ms=latency:ms", "FPS=throughput:fps")]
    rows = json.loads(run("judge", folder / "mine.csv", *columns, "--device", "Jetson Orin Nano", "--power-mode", "25W", "--json").stdout)[
        "rows"
    ]
    assert [(row["model"], row["figure"], row["value"], row["power_mode"]) for row in rows] == [
        ("YOLOv8n", "latency", 3.49, "25W"),
        ("YOLOv8n", "throughput", 286.0, "25W"),
    ]


@pytest.mark.usefixtures("folder")
def test_only_figures_whose_source_has_an_address_are_kept():
    """What a tool printed is judged without one; to keep it, say where it is published."""
    file, board = fixtures_of("llama_bench")[0], ("--device", "Raspberry Pi 5")
    with pytest.raises(ConfigError, match="every figure needs a source that can be looked up"):
        run("add", file, *board)
    assert "3 new" in run("add", file, *board, "--address", "https://example.org/thread").stderr
    kept_rows = json.loads(run("list", "--kind", "published", "--device", "Raspberry Pi 5", "--json").stdout)["published"]["rows"]
    assert sum(row["address"] == "https://example.org/thread" for row in kept_rows) == 3


def test_a_file_and_the_options_of_one_figure_are_refused(folder):
    """A value is of one figure; facts of all are taken."""
    result = run("add", folder / "guide.toml", "--value", 3)
    assert result.exit_code == 2
    assert "--value describes one figure" in result.stderr


def test_options_without_effect_are_refused(folder):
    """A fact of no file, a reader of none, a mapping beside a reader that knows its columns, an empty claim or key."""
    guide, bench = folder / "guide.toml", fixtures_of("llama_bench")[0]
    for arguments, message in (
        (("judge", "--model", "x"), "options state facts of a FILE or a claim"),
        (("judge", "--column", "A=model"), "--column says how a FILE is read"),
        (("judge", "--claim", ""), "--claim is empty"),
        (("judge", "--claim", CLAIM, "--reader", "table"), "--reader says how a FILE is read"),
        (("judge", bench, "--reader", "llama_bench", "--column", "A=model"), "the reader llama_bench knows its own"),
        (("judge", bench, "--retrieved", "2099-01-01"), "is in the future"),
        (("judge", bench, "--retrieved", "1.2.2026"), "write YYYY-MM-DD"),
        (("judge", "--claim", CLAIM, "--retrieved", "2099-01-01"), "is in the future"),
        (("add", guide, "--retrieved", "2099-01-01"), "is in the future"),
        (("add", "--model", "x", "--retrieved", "1.2.2026"), "write YYYY-MM-DD"),
        (("add", "--model", "x", "--column", "A=model"), "--column says how a FILE is read"),
        (("show", ""), "the key is empty"),
    ):
        with table_row(*arguments):
            result = run(*arguments)
            assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_what_is_left_out_cannot_steer_the_terminal(folder):
    """Names of scores and results that hold escape sequences, or half of a surrogate pair."""
    score = '{"_evaluate_version": "1", "\\u001b]0;x\\u0007": 0.5, "\\ud800x": 0.5, "num_samples": 200, "model": "m"}'
    (folder / "scores.json").write_text(score)
    write(folder / "summary_results.json", v60(), v60(Performance_Units="\x1b[31mX"))
    for arguments in (
        ("judge", folder / "scores.json", "--device", "d"),
        ("add", folder / "scores.json", "--device", "d"),
        ("import", folder / "summary_results.json", "--skip-refused"),
    ):
        with table_row(*arguments):
            result = run(*arguments)
            assert result.exit_code == 0
            assert "\N{REPLACEMENT CHARACTER}" in result.stderr or "\\x1b" in result.stderr
            assert all(line.isprintable() for line in result.stderr.splitlines())
