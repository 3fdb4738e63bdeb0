"""Facts about what `make bench` keeps of a commit."""

import json

import pytest

from tests.benchmarks import history
from tests.benchmarks.comparison import Line, as_rows, compared_pairs


def test_a_rate_is_the_time_of_one_unit():
    """2,000 records/s are 0.5 ms each; a share of a core is no time."""
    assert history.unit_of_work_ms("records/s", 2000) == 0.5
    assert [history.unit_of_work_ms(unit, 2.0) for unit in ("ms", "us", "s")] == [2.0, 0.002, 2000.0]
    assert history.unit_of_work_ms("of a core", 0.1) is None


def test_what_was_measured_of_a_changed_commit_is_not_published(tmp_path):
    """A comparison without a goal has no limit."""
    pairs = [(2.0, 1.0), (2.1, 1.0), (1.9, 1.0), (2.0, 1.0)]
    rows = json.dumps({"comparisons": as_rows([compared_pairs(Line("n", "ms", "p"), pairs)])})
    for commit in ("abc", "abc-dirty"):
        (tmp_path / commit).mkdir()
        (tmp_path / commit / "2026-11-26.json").write_text(rows)
    (row,) = history.measured(tmp_path)
    assert (row["commit"], row["day"], row["benchmark"], row["limit"]) == ("abc", "2026-11-26", "n / p", None)
    assert row["ratio"] == pytest.approx(2.0, rel=0.01)
    assert row["low"] < row["ratio"] < row["high"]
