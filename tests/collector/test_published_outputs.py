"""No output of a ledger changes by what others published: every command, page and export, with a planted figure and without."""

import re
import time

import pytest

from edgemeter.collector.published.published_folder import PublishedFolder
from tests.fixtures.command import edgemeter
from tests.fixtures.every_output import LINES, OF_PUBLISHED, PUBLISHED, SHOW_NO_FIGURE, commands_of_a_ledger, outputs_of
from tests.fixtures.ledgers import fill
from tests.fixtures.published_rows import published_row
from tests.fixtures.record_factory import make_generation
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

# Figures that no device has, of the very case that was measured and of one that nobody measured.
ABSURD = 0.00012345
NAMES = (("planted-model", "planted-board"), ("tiny-detector", "pi-1"))
KINDS = ("latency_p50_ms", "throughput_per_s", "energy_gross_mj", "memory", "generation_decode_tokens_per_s", "ttft", "power", "size")
PLANTED = re.compile(r"planted|0\.00012345|1\.2345e-0?4")


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
            PublishedFolder(home / "references").add(rows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGEMETER_HOME", str(home))
            patch.setattr(time, "time_ns", lambda: (FIRST_DAY + 10) * DAY_NS)
            ledger = fill(home / "ledger.sqlite", runs)
            outputs.append({key: text.replace(str(home), "HOME") for key, text in outputs_of(ledger, home).items()})
            if name == "with":
                outputs.append({"list": edgemeter("references", "list", "--kind", "published", "--format", "json").stdout})
    return outputs


def test_every_command_that_reads_a_ledger_is_walked_through():
    """A new one gets a line among the outputs, or stands among those that show no figure."""
    assert set(LINES) | SHOW_NO_FIGURE | OF_PUBLISHED == set(commands_of_a_ledger())


@pytest.mark.nightly
def test_no_view_export_or_sentence_changes_by_what_others_published(world):
    """Neither a figure nor a name of them is in any; those of the runs, the picks among them too, are the same to the last digit."""
    without, with_rows, of_references = world
    assert len(without) > 100
    for name, text in with_rows.items():
        with table_row(name):
            if name != f"page, {PUBLISHED}":
                assert not PLANTED.search(text)
                assert text == without[name]
    for text in (of_references["list"], with_rows[f"page, {PUBLISHED}"]):
        assert text.count("planted-model") >= len(KINDS)
