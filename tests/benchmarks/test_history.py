"""Facts about what `make bench` keeps of a commit."""

import itertools
import json
import random

import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from tests.benchmarks import history
from tests.benchmarks.comparison import Line, as_rows, at_most, compared_pairs, figure


@pytest.mark.services
def test_only_ours_is_judged_between_two_commits(tmp_path):
    """The whole machine 30% slower violates no limit, nor does a peer alone; ours 10% slower does. No row is the peer's own."""
    of = {"engine p50, 1 thread": (1.1, 1.0), "on a slower machine": (1.3, 1.3), "beside a slower peer": (1.0, 1.1)}
    draw = random.Random(1)  # noqa: S311 - a simulation
    for commit, day in itertools.product(("old", "new"), range(3)):
        results = [figure("not timed in pairs", "s", 3.0)]
        for name, (measured, peer) in of.items():
            factors = (measured, peer) if commit == "new" else (1.0, 1.0)
            pairs = [(factors[0] * draw.gauss(1, 0.01), factors[1] * draw.gauss(1, 0.01)) for _ in range(4)]
            results.append(compared_pairs(Line(name, "ms", "bare loop around invoke()", at_most(1.2)), pairs))
        path = tmp_path / commit / f"{day}.json"
        history.write(path, results)
        written = json.loads(path.read_bytes())
        for run in written["runs"]:
            run["started_at_ns"] += day * 86_400 * 10**9
        path.write_text(json.dumps(written))
    result = CliRunner().invoke(
        cli,
        ["compare", str(tmp_path / "old"), str(tmp_path / "new"), "--fail-on", "slower:5%", "--json"],
        catch_exceptions=False,
    )
    assert result.exit_code == 1
    outcomes = {limit["case"].split(" fp32")[0]: limit["outcome"] for limit in json.loads(result.stdout)["limits"]}
    assert outcomes == {
        "engine p50 1 thread over bare loop around invoke": "violated",
        "on a slower machine over bare loop around invoke": "kept",
        "beside a slower peer over bare loop around invoke": "kept",
    }
    rows = json.loads((tmp_path / "new" / "0.json").read_bytes())["comparisons"]
    assert [row["name"] for row in rows] == list(of)


def test_a_rate_is_the_time_of_one_unit():
    """2,000 records/s are 0.5 ms each; a share of a core is no time."""
    assert history.unit_of_work_ms("records/s", 2000) == 0.5
    assert [history.unit_of_work_ms(unit, 2.0) for unit in ("ms", "us", "s")] == [2.0, 0.002, 2000.0]
    assert history.unit_of_work_ms("of a core", 0.1) is None


def test_published_ratios_are_drawn_by_commit():
    """Every commit of the table is in the chart; a new ratio is a new row of it."""
    chart_text = history.CHART.read_text(encoding="utf-8")
    rows = history.published()
    assert rows
    assert all(f">{row['commit']}<" in chart_text for row in rows)
    assert set(history.BOUNDS) < set(rows[0]) == set(history.chart(rows).table.columns)


def test_what_was_measured_of_a_changed_commit_is_not_published(tmp_path):
    """A comparison without a goal has no limit."""
    pairs = [(2.0, 1.0), (2.1, 1.0), (1.9, 1.0), (2.0, 1.0)]
    rows = json.dumps({"comparisons": as_rows([compared_pairs(Line("n", "ms", "p"), pairs)])})
    for commit in ("abc", "abc-dirty"):
        (tmp_path / commit).mkdir()
        (tmp_path / commit / "2026-11-26.json").write_text(rows)
    (row,) = history.measured(tmp_path)
    assert (row["commit"], row["day"], row["benchmark"], row["limit"]) == ("abc", "2026-11-26", "n / p", None)
    assert row["ratio"] == pytest.approx(2.0)
    assert row["low"] < row["ratio"] < row["high"]
