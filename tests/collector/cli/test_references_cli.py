"""`edgemeter references`: published figures are kept apart, judged, and never rank."""

import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector.cli.references import references
from edgemeter.collector.published.listing import APART, LEGEND
from edgemeter.collector.published.readers import shipped_rows
from tests.fixtures.comparison_factory import document, make_run
from tests.fixtures.published_rows import folder_of, published_row
from tests.fixtures.record_factory import make_environment

CLAIM = "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(
        references, [str(argument) for argument in arguments], catch_exceptions=False
    )


@pytest.mark.usefixtures("folder")
def test_a_claim_is_judged_with_its_arithmetic():
    """The output has both sides of the inequality, and where the bound is stated."""
    (row,) = json.loads(run("judge", "--claim", CLAIM, "--format", "json").stdout)["rows"]
    assert row["state"] == "impossible"
    (finding,) = [finding for finding in row["findings"] if finding["law"] == "memory"]
    assert (finding["value"], finding["limit"]) == (pytest.approx(32.13, rel=1e-3), 17.1)
    lines = run("judge", "--claim", CLAIM).stdout.splitlines()
    assert lines[0] == "impossible: Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2, 20 tokens/s tg"
    assert lines[1].startswith(
        "    why: 20 t/s x 1606 MB (3.213 x 10^9 weights x 4 bits) = 32.1 GB/s, "
    )
    assert lines[-1] == "    source: claim"
    assert max(map(len, lines)) <= 100
    assert (
        json.loads(run("judge", "--claim", CLAIM, "--fact", "batch=4", "--format", "json").stdout)[
            "rows"
        ][0]["state"]
        == "plausible"
    )


def test_a_users_file_is_judged_with_those_that_ship(folder):
    """MLPerf's results are apart, with what MLCommons requires.

    The list is narrowed by parts of names.
    """
    official = published_row(
        "throughput_per_s", 6400.5, "yolo-99", source="MLPerf Inference v5.1", version="v5.1"
    )
    folder_of(folder / "home" / "references", official)
    listing = " ".join(run("judge", "--model", "YOLO-99").stdout.split())
    for words in (APART, LEGEND, "MLPerf™ Inference v5.1, yolo-99"):
        assert words in listing
    document = json.loads(run("judge", "--format", "json").stdout)
    assert (document["ranks"], len(document["rows"])) == (False, len(shipped_rows()) + 1)
    assert {
        row["footnote"].endswith(LEGEND)
        for row in document["rows"]
        if row["source"].startswith("MLPerf")
    } == {True}
    assert "no published figure matches" in run("judge", "--device", "nothing").stderr


def test_what_a_file_leaves_open_is_named_and_added(folder):
    """`--fact` adds missing facts; a line that is not understood is left out."""
    (folder / "page.csv").write_text(
        "model,value,figure,unit\nyolo11n,81.2,p50,ms\nyolo11s,fast,p50,ms\n"
    )
    result = run(
        "judge",
        folder / "page.csv",
        "--fact",
        "device=Raspberry Pi 5",
        "--fact",
        "date=2026-11-02",
        "--format",
        "json",
    )
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["model"], row["device"], row["source"], row["date"]) == (
        "yolo11n",
        "Raspberry Pi 5",
        "page.csv",
        "2026-11-02",
    )
    assert "left out: line 3" in result.stderr


def test_own_runs_stand_beside_a_figure(folder):
    """The runs are from a named ledger; one that yields none is an error only if it is named."""
    store = folder / "runs.json"
    store.write_bytes(
        document(make_run(p50_ms=10.0, environment=make_environment(board="Raspberry Pi 5")))
    )
    claim = ("judge", "--claim", "tiny-detector on Raspberry Pi 5: 20 ms")
    (row,) = json.loads(run(*claim, "--ledger", store, "--format", "json").stdout)["rows"]
    assert [match["ratio"] for match in row["own_runs"]] == [2.0]
    assert "2.00x the 10" in run(*claim, "--ledger", store).stdout
    store.write_bytes(document())
    with pytest.raises((UnavailableError, ConfigError)):
        run(*claim, "--ledger", store)


@pytest.mark.usefixtures("folder")
def test_options_that_do_not_fit_together_are_refused():
    """The options are refused before anything is read."""
    for arguments in (
        ("judge", "page.md", "--claim", CLAIM),
        ("judge", "--fact", "batch=1"),
        ("judge", "a.csv", "--fact", "colour=1"),
    ):
        assert run(*arguments).exit_code == 2, arguments
