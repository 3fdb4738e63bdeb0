"""Facts about the list of findings: a finding is short at 80 columns, its sentence first, and nothing is cut in silence."""

import io
import itertools

import numpy as np
import pytest
from rich.console import Console

from edgemeter.collector.trend import watch
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.trend_list import show_trends
from edgemeter.collector.trend.trend_text import finding_lines
from tests.fixtures.series_factory import make_days, noisy


def lines_of(runs, width, **how):
    """Return the lines that `trend` shows on a terminal so wide."""
    trends = watch.trends_of(RunHistory(runs), (), ("latency_p50_ms", "energy_gross_mj"))
    console = Console(width=width, record=True, file=io.StringIO())
    show_trends(trends, max(trend.last_day for trend in trends), console, with_quiet=False, **how)
    return console.export_text().splitlines()


@pytest.fixture(scope="module")
def changed():
    """Return runs with findings of each kind, on boards with long names: steps with a cause, a drift, a gap."""
    firmwares = ["2024-05-01 bootloader 4fd8b1b"] * 50 + ["2024-11-12 bootloader 38e3ba7"] * 50
    drift = np.array(noisy(100, 100, seed=3)) * np.exp(np.linspace(0, 0.08, 100))
    runs = [
        run
        for unit in (1, 2)
        for run in make_days(
            noisy(100, 100, seed=unit, step_at=50, step_ratio=1.08), device=f"raspberry-pi-5-laboratory-oslo-{unit:02}", firmwares=firmwares
        )
    ]
    return [
        *runs,
        *make_days(drift, device="drifts"),
        *make_days(noisy(100, 80, seed=9), device="gone"),
    ]


def test_a_finding_has_four_lines_at_80_columns_and_its_sentence_comes_first(changed):
    """What changed, by how much and since when begins the first line; no line is longer than the terminal."""
    lines = lines_of(changed, 80, with_members=False)
    assert max(map(len, lines)) <= 80
    starts = [number for number, line in enumerate(lines) if line and not line.startswith(" ")]
    entries = [lines[begin:end] for begin, end in itertools.pairwise(starts)]
    assert len(entries) == 5
    assert all(len(entry) <= 4 for entry in entries)
    assert any(entry[0].startswith("drifts, energy: +2.4% (") for entry in entries)
    assert any(entry[0].startswith("gone: no run ") or entry[0].startswith("gone, energy: no run ") for entry in entries)


def test_nothing_is_cut_without_an_ellipsis_and_a_wide_terminal_or_a_file_shows_all(changed):
    """Every word of each finding is shown, or the entry ends with an ellipsis and a note says what shows the rest."""
    trends = watch.trends_of(RunHistory(changed), (), ("latency_p50_ms", "energy_gross_mj"))
    expected = [text for trend in trends for _, text in finding_lines(trend, max(trend.last_day for trend in trends))]
    for width in (80, 200):
        lines = lines_of(changed, width, with_members=True)
        words = " ".join(" ".join(lines).split())
        is_cut = any(line.endswith("…") for line in lines)
        assert is_cut == ("--format json" in words) == (width < 200)
        assert is_cut or all(text in words for text in expected)
    # In a file the columns stay: a row a finding, for grep and awk.
    _, header, *rows = lines_of(changed, 1000)
    assert "evidence" in header
    assert sum("drift, worse" in row for row in rows) == 2
