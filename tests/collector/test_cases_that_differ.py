"""Test that other settings or another served model make another case in every view.

A comparison across such cases has a mark.
"""

import csv
import io

import msgspec

from edgemeter.agent.base.console import Console
from edgemeter.agent.contract.record_figures import Neighbour, Together
from edgemeter.agent.contract.record_generation import LanguageModel
from edgemeter.collector.compare.between import between
from edgemeter.collector.compare.columns import flat
from edgemeter.collector.datacenter.sides import SideRequest, choose_sides
from edgemeter.collector.influx.points import tags_of
from edgemeter.collector.runs.contents import StoreContents
from edgemeter.collector.runs.run_table import chosen_columns, write_csv
from edgemeter.collector.show.compare_table import show_comparison
from edgemeter.collector.show.words import case_names
from edgemeter.collector.web import side_by_side
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.series import series_groups, titles
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import (
    booked,
    compare_runs,
    history_of,
    make_reference,
    make_run,
    summarised,
)
from tests.fixtures.record_factory import make_environment, make_generation
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import view_context

LANGUAGE = {
    "model": "notes",
    "task": "generation",
    "precision": "q4_0",
    "runtime": "llama",
    "ap": None,
}


def run_with(fields, make=make_run, **shared):
    """Return a run with these fields; `of_runtime` are fields of its runtime."""
    fields = fields | shared
    run = make(**{name: value for name, value in fields.items() if name != "of_runtime"})
    return msgspec.structs.replace(
        run, runtime=msgspec.structs.replace(run.runtime, **fields.get("of_runtime", {}))
    )


def optimised(level):
    """Return the fields of a run with that level of graph optimisation."""
    return {"of_runtime": {"options": {"graph_optimisation": level}}}


def cached(kv_type):
    """Return the fields of a run of a language model whose cache has values of that type."""
    return LANGUAGE | {"generation": make_generation(model=LanguageModel(kv_type=kv_type))}


def served(name, parameters):
    """Return the fields of a run of `chat.server`, which says that it serves that model."""
    language_model = LanguageModel(name=name, parameters=parameters)
    return LANGUAGE | {
        "model": "chat",
        "runtime": "server",
        "generation": make_generation(is_local=False, model=language_model),
    }


def pinned(*cpus):
    """Return the fields of a run on those cores; none: on any."""
    return {"cpus": cpus or None}


# By what two cases differ: the fields of each.
PAIRS = {
    "option of the runtime": (optimised("all"), optimised("none")),
    "type of the cache": (cached("f16"), cached("q8_0")),
    "served model": (served("qwen-0.5b", 494_000_000), served("qwen-7b", 7_600_000_000)),
    "cores": (pinned(), pinned(0, 1)),
    "another model at the same time": (
        {},
        {
            "together": Together(
                neighbours=(Neighbour(model="llm", sha256="cd" * 32, runtime="llama", threads=1),),
                slow_down_ratio=1.5,
            )
        },
    ),
    "output tokens": tuple(
        LANGUAGE | {"generation": make_generation(output_tokens=length)} for length in (11, 64)
    ),
}


def runs_of(pair):
    """Return three runs of each of two cases, 100 ms and 140 ms."""
    return [
        run_with(fields, p50_ms=p50_ms + number / 10)
        for fields, p50_ms in zip(pair, (100.0, 140.0), strict=True)
        for number in range(3)
    ]


def test_no_view_blends_two_cases():
    """A comparison has the figures of each case under its own name.

    Trend, page, InfluxDB and export have a series of each.
    """
    for name, pair in PAIRS.items():
        with table_row(name):
            runs = runs_of(pair)
            comparison = compare_runs(*runs, reference="device")
            assert sorted(round(row.case.p50_ms.value, 1) for row in comparison.rows) == [
                100.1,
                140.1,
            ]
            assert len(set(case_names([row.case for row in comparison.rows]))) == 2
            assert len(history_of(runs).series()) == 2
            assert len(set(titles(series_groups(booked(runs).cases)))) == 2
            assert len({tags_of(run)["case_hash"] for run in runs}) == 2
            file = io.StringIO()
            write_csv(runs, chosen_columns(), file)
            assert (
                len({row["case_hash"] for row in csv.DictReader(io.StringIO(file.getvalue()))}) == 2
            )


def test_the_cases_of_two_sides_are_compared_each_with_its_own():
    """A baseline with other settings is no baseline."""
    for name, pair in PAIRS.items():
        with table_row(name):
            both = between(
                ("before", StoreContents(runs_of(pair))), ("after", StoreContents(runs_of(pair)))
            ).comparison
            assert [
                round(row.case.p50_ms.value / row.reference.p50_ms.value, 3) for row in both.rows
            ] == [1.0, 1.0]
            slow_gone = [run for run in runs_of(pair) if run.latency.p50_ms < 120]
            (row,) = between(
                ("before", StoreContents(slow_gone)), ("after", StoreContents(runs_of(pair)))
            ).comparison.rows
            assert row.case.key == row.reference.key


def test_two_served_models_are_never_compared():
    """The servers' own statements decide, not the file that has their address."""
    small, large = PAIRS["served model"]
    comparison = compare_runs(run_with(large, p50_ms=16.04), run_with(small, make_reference))
    assert not [row for row in comparison.rows if not row.is_reference]
    assert {entry.reason for entry in comparison.left_out if "serv" in entry.reason}


def marked_pair(fields, other):
    """Return the row of a device's case against the only one of the reference."""
    (row,) = [
        row
        for row in compare_runs(run_with(fields), run_with(other, make_reference)).rows
        if not row.is_reference
    ]
    return row


# Settings that may differ in a comparison, each with its mark.
MARKED = {
    "other threads": ({"threads": 1}, {"threads": 4}),
    "other backend": ({"of_runtime": {"backend": "cpu"}}, {"of_runtime": {"backend": "cuda"}}),
    "other power mode": (
        {"environment": make_environment(power_mode="15W")},
        {"environment": make_environment(power_mode="MAXN")},
    ),
    "other settings": (optimised("none"), optimised("all")),
}


def test_what_is_compared_across_unequal_settings_is_marked_in_every_view():
    """JSON, CSV, terminal, page and the sides of a datacenter have the same mark."""
    for mark, (fields, other) in MARKED.items():
        with table_row(mark):
            runs = [run_with(fields), run_with(other, make_reference)]
            row = marked_pair(fields, other)
            assert mark in row.marks
            assert mark in flat(row)["marks"]
            assert mark not in marked_pair(fields, fields).marks
            summaries = summarised(runs)
            console = Console(file=io.StringIO(), width=200)
            show_comparison(compare_runs(*runs), console)
            assert mark in console.file.getvalue()
            context = view_context(runs)
            view = side_by_side.compare_view(context, ViewRequest("compare", {}), CaseFilter())
            assert mark in str(view.body)
            assert any(mark in str(cell) for line in view.tables[0].rows for cell in line)
            sides = choose_sides(
                summaries, SideRequest(edge=None, model=None, precision=None, server="reference")
            )
            assert any(mark in caution for server in sides.servers for caution in server.cautions)
