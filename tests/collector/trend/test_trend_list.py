"""The list of findings: the sentence first, every word shown, and a row a finding in a file."""

import io

import numpy as np
import pytest

from edgemeter.agent.base.console import Console
from edgemeter.collector.trend import watch
from edgemeter.collector.trend.trend_list import show_trends
from edgemeter.collector.trend.trend_text import finding_lines
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.series_factory import make_days, noisy


def lines_of(runs, width, **how):
    """Return the lines that `trend` shows on a terminal so wide."""
    trends = watch.trends_of(history_of(runs), (), ("latency_p50_ms", "energy_gross_mj"))
    console = Console(io.StringIO(), width)
    show_trends(trends, max(trend.last_day for trend in trends), console, with_quiet=False, **how)
    return console.file.getvalue().splitlines()


@pytest.fixture(scope="module")
def changed():
    """Return runs with findings of each kind, on boards with long names.

    They are steps with a cause, a drift and a gap.
    """
    firmwares = ["2024-05-01 bootloader 4fd8b1b"] * 50 + ["2024-11-12 bootloader 38e3ba7"] * 50
    drift = np.array(noisy(100, 100, seed=3)) * np.exp(np.linspace(0, 0.08, 100))
    runs = [
        run
        for unit in (1, 2)
        for run in make_days(
            noisy(100, 100, seed=unit, step_at=50, step_ratio=1.08),
            device=f"raspberry-pi-5-laboratory-oslo-{unit:02}",
            firmwares=firmwares,
        )
    ]
    return [
        *runs,
        *make_days(drift, device="drifts"),
        *make_days(noisy(100, 80, seed=9), device="gone"),
    ]


def test_a_finding_at_80_columns_is_its_sentence_then_what_it_is_of(changed):
    """The first line begins with the figure, its change and since when.

    No line is longer than the terminal.
    """
    lines = lines_of(changed, 80, with_members=False)
    assert max(map(len, lines[:-1])) <= 80
    first = [line for line in lines if line and not line.startswith(" ")]
    assert any(line.startswith("drifts, energy: +2.4% (") for line in first)
    assert any(line.startswith(("gone: no run ", "gone, energy: no run ")) for line in first)
    assert "    what: missing" in lines


def test_every_word_of_a_finding_is_shown(changed):
    """Terminals may have any width; a file keeps the columns, a row a finding."""
    trends = watch.trends_of(history_of(changed), (), ("latency_p50_ms", "energy_gross_mj"))
    expected = [
        text
        for trend in trends
        for _, text in finding_lines(trend, max(trend.last_day for trend in trends))
    ]
    for width in (80, 200):
        words = " ".join(" ".join(lines_of(changed, width, with_members=True)).split())
        assert all(text in words for text in expected)
    rows = lines_of(changed, 1000)
    assert any("evidence" in row for row in rows)
    assert sum("drift, worse" in row for row in rows) == 2
