"""Published figures for people and programs: one document, and lists.

The lists have MLPerf's results apart, with their footnotes.
"""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.number_text import count, printable, significant, times, with_interval
from edgemeter.agent.base.terminal import ENTRY_WIDTH, EntryTable, print_lines, print_text
from edgemeter.collector.published.laws import JudgedFigure, State
from edgemeter.collector.published.own_runs import OwnRun
from edgemeter.collector.published.row import PublishedRow

STATES: tuple[State, ...] = get_args(State)
OF_MLPERF = "MLPerf\N{TRADE MARK SIGN} results, not ranked"
LEGEND = (
    "The MLPerf\N{TRADE MARK SIGN} name and logo are trademarks of MLCommons Association in "
    "the United States and other countries. "
    "All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org for more "
    "information."
)
APART = (
    "MLPerf\N{TRADE MARK SIGN} results may only be compared with compatible "
    "MLPerf\N{TRADE MARK SIGN} results: they are listed "
    "separately from what Edgemeter measures, and are not ranked."
)
OwnRunsByKey = Mapping[tuple[object, ...], Sequence[OwnRun]]


def document(
    judged: Sequence[JudgedFigure], runs_by_key: OwnRunsByKey, left_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Return all facts about each figure, and the omissions of a file.

    Own runs are by the key of a row.
    """
    rows = [
        {
            **msgspec.to_builtins(figure.row),
            "canonical_value": figure.row.canonical,
            "canonical_unit": figure.row.kind.unit,
            "state": figure.state,
            "sentence": figure.sentence,
            "findings": msgspec.to_builtins(figure.findings),
            "own_runs": msgspec.to_builtins(runs_by_key.get(figure.row.key, ())),
            **({"footnote": f"{footnote(figure.row)} {LEGEND}"} if figure.row.is_mlperf else {}),
        }
        for figure in judged
    ]
    return {"ranks": False, "rows": rows, "left_out": list(left_out), "summary": summary(judged)}


def apart_from_mlperf(
    judged: Sequence[JudgedFigure],
) -> tuple[list[JudgedFigure], list[JudgedFigure]]:
    """Return the figures, and those of MLPerf.

    MLCommons requires its results to be apart, with its footnote.
    """
    return [figure for figure in judged if not figure.row.is_mlperf], [
        figure for figure in judged if figure.row.is_mlperf
    ]


def summary(judged: Sequence[JudgedFigure]) -> str:
    """Return the verdicts in one line: `40 figures: 3 impossible, 12 unclear, 25 plausible`."""
    states = Counter(figure.state for figure in judged)
    return (
        f"{count(len(judged), 'figure')}: "
        f"{', '.join(f'{states[state]} {state}' for state in STATES)}"
    )


def figure_text(row: PublishedRow) -> str:
    """Return a figure as its source states it: `20 t/s decoding rate, mean (18 to 22)`."""
    title = row.kind.title
    statistic = f", {row.statistic}" if row.statistic and row.statistic not in title else ""
    ends = f" ({row.low:g} to {row.high:g})" if row.low and row.high else ""
    return f"{row.value:.12g} {row.unit} {title}{statistic}{ends}"


def footnote(row: PublishedRow) -> str:
    """Return the footnote that MLCommons requires for a result of MLPerf, without the `LEGEND`."""
    name = row.source.replace("MLPerf", "MLPerf\N{TRADE MARK SIGN}")
    retrieved = "Copied second-hand of" if row.stated_by == "second-hand" else "Retrieved from"
    return (
        f"{name}, {row.model}, {row.conditions}. {retrieved} {row.address} {row.date}, "
        f"{row.version}."
    )


def own_text(own_run: OwnRun, unit: str) -> str:
    """Return an own run next to a figure, in words.

    An example is `1.90x the 10.5 ms ± 2% of pi-1, yolo11n (5 runs); batch 8 against 1`.
    """
    own_figure = f"{significant(own_run.value)} {unit}"
    if own_run.low is not None and own_run.high is not None:
        own_figure = with_interval(own_figure, own_run.value, own_run.low, own_run.high)
    own_figure = (
        f"{times(own_run.ratio)} the {own_figure} of {own_run.name} ({count(own_run.runs, 'run')})"
    )
    return "; ".join([own_figure, *own_run.differs])


def show(judged: Sequence[JudgedFigure], runs_by_key: OwnRunsByKey, console: Console) -> None:
    """Print the figures, those of MLPerf apart, and a summary of several."""
    elsewhere, official = apart_from_mlperf(judged)
    _print_figures(console, elsewhere, runs_by_key)
    if official:
        print_text(console, OF_MLPERF, "bold")
        _print_figures(console, official, runs_by_key)
        print_lines(
            console,
            [
                line
                for text in [
                    *dict.fromkeys(footnote(figure.row) for figure in official),
                    APART,
                    LEGEND,
                ]
                for line in textwrap.wrap(
                    text, ENTRY_WIDTH, break_long_words=False, break_on_hyphens=False
                )
            ],
        )
    if len(judged) > 1:
        print_text(console, summary(judged), "bold")


def _print_figures(
    console: Console, judged: Sequence[JudgedFigure], runs_by_key: OwnRunsByKey
) -> None:
    listed = [
        (
            f"{figure.state}: {figure.row.model} on {figure.row.device}, {figure_text(figure.row)}",
            figure.sentence,
            "; ".join(
                own_text(own_run, figure.row.kind.unit)
                for own_run in runs_by_key.get(figure.row.key, ())
            ),
            figure.row.source,
        )
        for figure in judged
    ]
    console.print(
        EntryTable(
            "",
            ("figure", "why", "own runs", "source"),
            [[printable(cell) for cell in cells] for cells in listed],
        )
    )
