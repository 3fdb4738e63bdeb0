"""Test that a published figure never ranks with a measured one.

It does so in no view, export or sentence, and it enters no mean.
"""

import json
import re

import msgspec
import pytest

from edgemeter.agent.contract.figures import FIGURES
from edgemeter.collector.influx.points import tags_of
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import figures_of, make_run, summarised
from tests.fixtures.ledgers import fill
from tests.fixtures.own_imports import FOLDER_OF, MODULES, arrows
from tests.fixtures.record_factory import (
    make_accuracy,
    make_energy,
    make_generation,
    make_generation_energy,
)
from tests.fixtures.rows import table_row

GROUPS = (
    "latency",
    "throughput",
    "energy",
    "accuracy",
    "memory",
    "cold_start",
    "preprocess",
    "postprocess",
)


def test_what_others_published_is_read_by_its_own_views_alone():
    """No other module reads them, so no ranking, export or sentence can have one.

    The context passes them on.
    """
    readers = {
        path
        for path, module in arrows()
        if "/published/" not in path and FOLDER_OF[module].endswith("/published")
    }
    passing = {"collector/web/queries.py", "collector/web/server.py"}
    assert readers == {"collector/cli/references.py", "collector/web/published_view.py"} | passing
    users = {path.name for path in MODULES if re.search(r"context\.published\b", path.read_text())}
    assert users == {"published_view.py"}


def full_run(**changes):
    fields = {
        "task": "generation",
        "generation": make_generation(energy=make_generation_energy()),
        "accuracy": make_accuracy(metric="exact_match", value=0.5, images=64),
        "energy": make_energy(),
        "latencies_ms": (),
    }
    return make_run(**(fields | changes))


def absurd(value):
    """Return a part of a record with every figure in it a thousand times as large."""
    if isinstance(value, float):
        return value * 1000
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{name: absurd(getattr(value, name)) for name in value.__struct_fields__}
        )
    return value


def planted_run(*groups):
    """Return the same run with absurd figures of these groups.

    Its record says that they were published.
    """
    run = full_run(id="planted")
    parts = {"throughput": "throughput_per_s"}
    changes = {
        parts.get(group, group): absurd(getattr(run, parts.get(group, group))) for group in groups
    }
    provenance = {group: "published" if group in groups else "measured" for group in GROUPS}
    return msgspec.structs.replace(run, **changes, provenance=provenance)


def test_a_group_whose_provenance_is_published_enters_no_mean():
    """Neither the group nor a figure derived from it enters a mean.

    Its row keeps none of them, and in InfluxDB it is a series of its own.
    """
    measured = tags_of(full_run())
    for group in GROUPS:
        with table_row(group):
            figures = figures_of(planted_run(group))
            assert {
                entry.name
                for entry in FIGURES
                if group in entry.provenance_groups and figures.value(entry.name) is not None
            } == set()
            tags = tags_of(planted_run(group))
            assert {name: tags[name] for name in tags if tags[name] != measured[name]} != {}
            assert any("published" in (tags[name] or "") for name in ("variant", "energy_source"))
            (before,) = summarised([full_run(), full_run(), full_run()])
            (after,) = summarised([full_run(), full_run(), full_run(), planted_run(group)])
            for entry in FIGURES:
                figure = after.figures.get(entry.name)
                if entry.name in before.figures:
                    assert figure.value == pytest.approx(before.figures[entry.name].value), (
                        entry.name
                    )
                if group in entry.provenance_groups:
                    assert figure is None or figure.runs == 3, entry.name


def test_a_list_of_runs_names_the_figures_that_were_published(tmp_path):
    """The table, JSON, CSV and a single run mark them.

    So whoever sorts the list knows which figures are beside measured ones.
    """
    planted = msgspec.structs.replace(planted_run("latency", "throughput"), id="planted-1")
    ledger = fill(tmp_path / "ledger.sqlite", [full_run(id="sound-1"), planted])
    rows = {
        row["id"]: row
        for row in json.loads(edgemeter("runs", "--ledger", ledger, "--format", "json").stdout)[
            "runs"
        ]
    }
    assert [rows[name]["provenance"] for name in ("sound-1", "planted-1")] == [
        "measured",
        "latency published, throughput published",
    ]
    assert "latency published" in edgemeter("runs", "--ledger", ledger, "--format", "csv").stdout
    table = edgemeter("runs", "--ledger", ledger, "--format", "markdown").stdout
    assert re.search(r"planted.*ok, latency published", table)
    assert re.search(
        r"^run planted-1, published ",
        edgemeter("runs", "show", "planted-1", "--ledger", ledger).stdout,
    )
