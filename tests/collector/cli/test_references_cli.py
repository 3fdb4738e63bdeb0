"""`edgemeter references`: published figures are kept apart, judged, and never rank."""

import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector.cli.references import references
from edgemeter.collector.published.published_folder import APART, LEGEND, shipped_rows
from tests.fixtures.comparison_factory import document, make_reference, make_run
from tests.fixtures.published_rows import mlperf
from tests.fixtures.record_factory import make_environment

CLAIM = "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tokens/s"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a home of its own, with one official file in it."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    (tmp_path / "summary_results.json").write_text(json.dumps([mlperf(Model="yolo-99"), mlperf(Model="bert", errors=1)]))
    return tmp_path


def run(*arguments):
    """Run the command; an error of ours comes through."""
    return CliRunner().invoke(references, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.usefixtures("folder")
def test_a_claim_is_judged_with_its_arithmetic():
    """Both sides of the inequality, and where the bound stands."""
    (row,) = json.loads(run("judge", "--claim", CLAIM, "--format", "json").stdout)["rows"]
    assert row["state"] == "impossible"
    (finding,) = [finding for finding in row["findings"] if finding["law"] == "memory"]
    assert (finding["value"], finding["limit"]) == (pytest.approx(32.13, rel=1e-3), 17.1)
    lines = run("judge", "--claim", CLAIM).stdout.splitlines()
    assert lines[0] == "impossible: Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2, 20 tokens/s tg"
    assert lines[1].startswith("    why: 20 t/s x 1606 MB (3.213 x 10^9 weights x 4 bits) = 32.1 GB/s, ")
    assert lines[-1] == "    source: claim"
    assert max(map(len, lines)) <= 100
    assert json.loads(run("judge", "--claim", CLAIM, "--fact", "batch=4", "--format", "json").stdout)["rows"][0]["state"] == "plausible"


def test_a_round_is_kept_and_listed_apart_with_its_footnotes(folder):
    """What the round marks as faulty is named."""
    result = run("add", folder / "summary_results.json", "--fact", "date=2026-11-02")
    assert "1 new figure, 0 already present" in result.stdout
    assert "left out: result 2" in result.stderr
    listed = run("list", "--model", "yolo-99").stdout
    for words in (APART, LEGEND, "MLPerf™ Inference v5.1, yolo-99"):
        assert words in " ".join(listed.split())
    rows = json.loads(run("list", "--format", "json").stdout)["published"]["rows"]
    assert len(rows) == len(shipped_rows()) + 1
    assert {row["footnote"].endswith(LEGEND) for row in rows if row["source"].startswith("MLPerf")} == {True}
    assert "0 new figures, 1 already present" in run("add", folder / "summary_results.json", "--fact", "date=2026-11-02").stdout


def test_only_what_was_measured_ranks(folder):
    """A device's own runs are no reference; the lists are narrowed by parts of names."""
    store = folder / "runs.json"
    store.write_bytes(document(make_run(), make_reference(), make_reference()))
    blocks = json.loads(run("list", "--ledger", store, "--format", "json").stdout)
    assert {name: (block["ranks"], len(block["rows"])) for name, block in blocks.items()} == {
        "measured": (True, 1),
        "published": (False, len(shipped_rows())),
    }
    assert (blocks["measured"]["rows"][0]["device"], blocks["measured"]["rows"][0]["runs"]) == ("server-1", 2)
    of_measured = " ".join(run("list", "--kind", "measured", "--ledger", store).stdout.split())
    assert ("server-1" in of_measured, APART in of_measured) == (True, False)
    assert "no reference matches" in run("list", "--device", "nothing", "--ledger", store).stderr


def test_own_runs_stand_beside_a_figure(folder):
    """Of a ledger that is named; one that gives none is an error only if it is named."""
    store = folder / "runs.json"
    store.write_bytes(document(make_run(p50_ms=10.0, environment=make_environment(board="Raspberry Pi 5"))))
    claim = ("judge", "--claim", "tiny-detector on Raspberry Pi 5: 20 ms")
    (row,) = json.loads(run(*claim, "--ledger", store, "--format", "json").stdout)["rows"]
    assert [match["ratio"] for match in row["own_runs"]] == [2.0]
    assert "2.00x the 10" in run(*claim, "--ledger", store).stdout
    store.write_bytes(document())
    with pytest.raises((UnavailableError, ConfigError)):
        run(*claim, "--ledger", store)


@pytest.mark.usefixtures("folder")
def test_options_that_do_not_fit_together_are_refused():
    """Before anything is read."""
    for arguments in (("judge", "page.md", "--claim", CLAIM), ("judge", "--column", "a=model"), ("judge", "--fact", "batch=1"), ("add",)):
        assert run(*arguments).exit_code == 2, arguments
