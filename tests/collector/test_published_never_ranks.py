"""A figure that others published ranks with nothing that was measured, in no view, export or sentence, and enters no median."""

import json
import re
import time

import msgspec
import pytest

from edgemeter.agent.contract.figures import FIGURES
from edgemeter.collector.compare import views
from edgemeter.collector.influx.points import tags_of
from edgemeter.collector.published.shelf import Shelf
from edgemeter.collector.runs.run_figures import INDEXED, figures_of
from edgemeter.collector.runs.store import StoreContents
from tests.fixtures.command import edgemeter
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.every_output import LINES, OF_PUBLISHED, PUBLISHED, SHOW_NO_FIGURE, commands_of_a_ledger, outputs_of
from tests.fixtures.ledgers import fill
from tests.fixtures.published_rows import published_row
from tests.fixtures.record_factory import make_accuracy, make_energy, make_generation, make_generation_energy
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

# Figures that no device has, of the very case that was measured and of one that nobody measured.
ABSURD = 0.00012345
NAMES = (("planted-model", "planted-board"), ("tiny-detector", "pi-1"))
KINDS = ("latency", "throughput", "energy", "memory", "tokens", "ttft", "power", "size")
PLANTED = re.compile(r"planted|0\.00012345|1\.2345e-0?4")
GROUPS = ("latency", "throughput", "energy", "accuracy", "memory", "cold_start", "preprocess", "postprocess")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return every output of a ledger: without a published figure, and with a folder of absurd ones."""
    runs = [run for seed, device in enumerate(("pi-1", "pi-2")) for run in make_days(noisy(80, 8, seed=seed), device=device)]
    runs += make_days(noisy(20, 8, seed=7), device="server-1", role="reference")
    language = {"model": "notes", "task": "generation", "precision": "q4_0", "runtime": "llama", "generation": make_generation()}
    runs += make_days(noisy(2200, 8, seed=9), device="pi-2", seq=100, ap=None, **language)
    outputs = []
    for name in ("without", "with"):
        home = tmp_path_factory.mktemp(name)
        if name == "with":
            rows = [published_row(figure, ABSURD, *names, source="planted") for names in NAMES for figure in KINDS]
            Shelf(home / "references").add(rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGEMETER_HOME", str(home))
            patch.setattr(time, "time_ns", lambda: (FIRST_DAY + 10) * DAY_NS)
            ledger = fill(home / "ledger.sqlite", runs)
            outputs.append({key: text.replace(str(home), "HOME") for key, text in outputs_of(ledger, home).items()})
            if name == "with":
                outputs.append({"list": edgemeter("references", "list", "--kind", "published", "--json").stdout})
    return outputs


def test_every_command_that_reads_a_ledger_is_walked_through():
    """A new one gets a line among the outputs, or stands among those that show no figure."""
    assert set(LINES) | SHOW_NO_FIGURE | OF_PUBLISHED == set(commands_of_a_ledger())


@pytest.mark.nightly
def test_no_view_export_or_sentence_changes_by_what_others_published(world):
    """Neither a figure nor a name of them is in any; those of the runs, the picks among them too, are the same to the last digit."""
    without, with_rows, of_references = world
    assert len(without) > 150
    for name, text in with_rows.items():
        with table_row(name):
            if name != f"page, {PUBLISHED}":
                assert not PLANTED.search(text)
                assert text == without[name]
    for text in (of_references["list"], with_rows[f"page, {PUBLISHED}"]):
        assert text.count("planted-model") >= len(KINDS)


def full_run(**changes):
    """Return a run that has every figure."""
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
        return msgspec.structs.replace(value, **{name: absurd(getattr(value, name)) for name in value.__struct_fields__})
    return value


def planted_run(*groups):
    """Return the same run with absurd figures of these groups, which its record says were published."""
    run = full_run(id="planted")
    parts = {"throughput": "throughput_per_s"}
    changes = {parts.get(group, group): absurd(getattr(run, parts.get(group, group))) for group in groups}
    provenance = {group: "published" if group in groups else "measured" for group in GROUPS}
    return msgspec.structs.replace(run, **changes, provenance=provenance)


def test_a_group_whose_provenance_is_published_enters_no_median():
    """Of no group, nor of a figure that is worked out from it; the index keeps none of them, and in InfluxDB it is a series of its own."""
    measured = tags_of(full_run())[0]
    for group in GROUPS:
        with table_row(group):
            figures = figures_of(planted_run(group))
            assert {entry.name for entry in INDEXED if entry.provenance_group == group and figures.value(entry.key) is not None} == set()
            tags = tags_of(planted_run(group))[0]
            assert {name: tags[name] for name in tags if tags[name] != measured[name]} != {}
            assert any("published" in (tags[name] or "") for name in ("variant", "energy_source"))
            (before,) = views.gather(StoreContents([full_run(), full_run(), full_run()])).summaries
            (after,) = views.gather(StoreContents([full_run(), full_run(), full_run(), planted_run(group)])).summaries
            for entry in FIGURES:
                spread = after.spreads.get(entry.name)
                if entry.name in before.spreads:
                    assert (spread.median, spread.high) == (before.spreads[entry.name].median, before.spreads[entry.name].high), entry.name
                if group in {entry.provenance_group, *entry.further_provenance_groups}:
                    assert spread is None or spread.n == 3, entry.name


def test_a_list_of_runs_names_the_figures_that_were_published(tmp_path):
    """In the table, in JSON and CSV, and above a single run: whoever sorts the list knows what stands beside what was measured."""
    planted = msgspec.structs.replace(planted_run("latency", "throughput"), id="planted-1")
    ledger = fill(tmp_path / "ledger.sqlite", [full_run(id="sound-1"), planted])
    rows = {row["id"]: row for row in json.loads(edgemeter("runs", "--ledger", ledger, "--json").stdout)["runs"]}
    assert [rows[name]["provenance"] for name in ("sound-1", "planted-1")] == ["measured", "latency published, throughput published"]
    assert "latency published" in edgemeter("runs", "--ledger", ledger, "--format", "csv").stdout
    table = edgemeter("runs", "--ledger", ledger, "--format", "markdown").stdout
    assert re.search(r"planted.*valid, latency published", table)
    assert re.search(r"^run planted-1, published ", edgemeter("runs", "show", "planted-1", "--ledger", ledger).stdout)
