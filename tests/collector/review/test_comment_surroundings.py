"""What a comment has besides the figures: links to the page, the share of a limit, and why there is no baseline."""

import re

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.main import cli
from edgemeter.collector.review import gate
from edgemeter.collector.review.document import MARK, page_address
from edgemeter.collector.review.review import review
from edgemeter.collector.runs.store import StoreContents
from tests.fixtures.comparison_factory import document
from tests.fixtures.review_runs import make_side
from tests.fixtures.rows import table_row


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a folder without a ledger of this device."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDGEMETER_LEDGER", raising=False)
    return tmp_path


def named(runs, prefix):
    """Return the runs with ids of their own."""
    return [replace(run, id=f"{prefix}{index}") for index, run in enumerate(runs)]


def written(folder, **of_new):
    """Write both sides of a change of 1.2%; return their paths."""
    paths = folder / "base.json", folder / "new.json"
    paths[0].write_bytes(document(*named(make_side(agent="1"), "b")))
    paths[1].write_bytes(document(*named(make_side(agent="2", seed=2, start=100, **({"factor": 1.012} | of_new)), "n")))
    return [str(path) for path in paths]


def comment(*arguments):
    """Return the result of the command and its comment."""
    result = CliRunner().invoke(cli, ["compare", *map(str, arguments), "--format", "markdown"])
    return result.exit_code, result.output


def test_the_comment_links_to_the_page_whose_address_is_known(home, monkeypatch):
    """By the option or the variable: to the case over time, and to the newest run of each side; without one there is no link."""
    base, new = written(home)
    assert "](http" not in comment(base, new)[1]
    _, text = comment(base, new, "--page-url", "https://page.example:8080/edge/")
    assert "(https://page.example:8080/edge/trend?device=pi-1&fleet=lab&model=tiny-detector)" in text
    assert "[baseline](https://page.example:8080/edge/run?id=b7), [new](https://page.example:8080/edge/run?id=n7)" in text
    monkeypatch.setenv("EDGEMETER_PAGE_URL", "http://page.example")
    assert "[See the runs](http://page.example/compare)" in comment(base, new)[1]


def test_an_address_that_is_none_of_a_page_is_refused():
    """Nothing but a plain address comes into a link."""
    assert page_address(None) == page_address("") == ""
    for text in ("javascript:alert(1)", "page.example", "https://", "https://x/)[y](z", "https://x/?token=1", "ftp://x"):
        with table_row(text), pytest.raises(ConfigError, match=r"write https://HOST"):
            page_address(text)


def test_a_finding_has_the_share_of_its_limit():
    """The figure's share, and that of the worse end of its interval; a figure that is better uses nothing."""
    for change, limit, used in (
        ({"factor": 1.012}, "slower:3%", 0.4),
        ({"factor": 0.9}, "slower:3%", 0.0),
        ({"energy_factor": 1.1}, "energy:5%", 2.0),
        ({"ap": 0.62}, "ap:1", 0.5),
        ({"factor": 1.25}, "throughput:50%", 0.5),
    ):
        with table_row(change, limit):
            after = make_side(agent="2", seed=2, start=100, spread=0.0001, **change)
            result = review(("before", StoreContents(make_side(agent="1", spread=0.0001))), ("after", StoreContents(after)))
            (finding,) = gate.judge(result, gate.parse(limit))
            assert finding.used == pytest.approx(used, abs=0.02)
            assert finding.used_at_most >= finding.used
            assert finding.share_text == f"used {finding.used:.0%} of the limit (upper bound {finding.used_at_most:.0%})"


def test_a_baseline_without_runs_explains_itself_in_the_comment(home):
    """Why, how it gets some, what was measured anyway; and the gate stays closed."""
    _, new = written(home)
    (home / "empty").mkdir()
    (home / "none.json").write_bytes(document())
    for baseline, why in (
        (home / "empty", "holds no bundle"),
        (home / "none.json", "has no run to compare"),
        (home / "gone", "is neither"),
    ):
        with table_row(baseline):
            code, text = comment(baseline, new, "--fail-on", "slower:3%")
            assert code == 1
            assert text.startswith(f"{MARK}\n### Edgemeter: **no baseline to compare with**\n")
            assert "baseline: stored" in text
            assert "Not judged: `slower:3%`; in doubt a gate stays closed." in text
            assert re.search(r"\| tiny-detector fp32 on onnx, pi-1 \| 12\.\d ms \| \d+\.\d mJ \| 0\.625 \| 8 \|", text)
            assert why in text or baseline.name == "gone"
