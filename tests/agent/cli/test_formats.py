"""Facts about `--format`: the commands whose tables people quote take all five, and what it prints is what the format promises."""

import csv
import io
import json
import re
import shlex
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from edgemeter.agent.contract import record
from edgemeter.agent.contract.orders import Logs, Order
from edgemeter.agent.jobs.journal import JOURNAL_FILE, Journal
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from tests.fixtures.bundle_factory import write_bundle
from tests.fixtures.command_lines import every_command
from tests.fixtures.comparison_factory import document, make_reference
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import DAY_NS, FIRST_DAY, make_days, noisy

FORMATS = ("table", "json", "csv", "markdown", "latex")
REPLAY = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes" / "replay.replay.json"
# How each is called in the world below, behind its own name.
LINES = {
    "run": f"-m {REPLAY} --mode rapid --power none --no-save",
    "runs": "",
    "compare": "--reference server-1 --ledger runs.json",
    "trend": "",
    "trend annotate": "--list",
    "references list": "",
    "references judge": "",
    "config rules": "",
}
# These measure for long, need another machine, or what a test of theirs sets up; they print as the others do.
ELSEWHERE = {"accuracy", "benchmark", "compare --datacenter", "compare --models", "models profile"}


def takes_all(option):
    """Return whether an option is `--first-boot` of these five; that of `fleet card` is of its manifest."""
    return "--format" in option.opts and tuple(option.type.choices) == FORMATS


WITH_FORMAT = {" ".join(path) for path, command in every_command() if any(map(takes_all, command.params))}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a folder with a ledger, a watch file, a journal, a store, a bundle and a fleet."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("EDGEMETER_HOME", str(folder))
        patch.setenv("EDGEMETER_CONFIG", "")
        patch.delenv("EDGEMETER_CONFIG")
        patch.setattr(time, "time_ns", lambda: (FIRST_DAY + 71) * DAY_NS)
        runs = make_days(noisy(100, 70, step_at=55, step_ratio=1.09))
        with SqliteLedger(folder / "ledger.sqlite") as ledger:
            ledger.commit([Arrival(run, record.encode(run), "t", 7) for run in runs])
            ledger.commit([], [Rejection("edgemeter/v1/lab/pi-1/result", b"x|y_&%", "no record: 100% of it_", 10**9)])
        (folder / "runs.json").write_bytes(document(*runs, make_reference()))
        write_bundle(folder).rename(folder / "BUNDLE")
        book = Journal(folder / JOURNAL_FILE)
        book.ends(book.add(Order(job="logs-1", attempt=1, version=0, work=Logs(), timeout_s=60.0)).place, "failed", "no_room | 100%")
        book.close()
        called("trend annotate 'a_new & better supply' --day 2026-01-01")
        called("trend alerts check")
        called("fleet --folder fleet init --broker broker.example")
        yield folder


def called(line):
    """Return what a command prints on standard output."""
    result = CliRunner().invoke(cli, shlex.split(line), catch_exceptions=False, standalone_mode=False)
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def columns_of(line):
    """Return the cells of a line of Markdown."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def check(form, text):
    """Assert that `text` is in the format."""
    if form == "json":
        assert isinstance(json.loads(text), dict | list)
    elif form == "csv":
        header, *rows = list(csv.reader(io.StringIO(text), strict=True)) or [[]]
        assert len(set(header)) == len(header)
        assert all(len(row) == len(header) for row in rows)
    elif form == "markdown":
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            lines = table.splitlines()
            assert len({len(columns_of(line)) for line in lines}) == 1
            assert re.fullmatch(r"\|(?:-+:?\|)+", lines[1])
    elif form == "latex":
        body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
        assert body.count(r"\begin{tabular}") == body.count(r"\end{tabular}") == body.count(r"\toprule") == body.count(r"\bottomrule")
        for spec, inner in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", body, re.DOTALL):
            rows = [row for row in inner.splitlines() if row.endswith(r"\\")]
            assert all(len(re.split(r"(?<!\\)&", row)) == len(spec) for row in rows)
            assert not re.search(
                r"(?<!\\)[%#_^]|(?<!\\)\$(?!\\|-)", inner.replace("$-$", "").replace(r"\$", "").replace(r"$\pm$", "").replace(r"$\geq$", "")
            )


def test_every_command_with_a_table_is_walked_through():
    """A new one gets a line here."""
    assert set(LINES) | ELSEWHERE == WITH_FORMAT


def test_json_is_the_short_form_everywhere():
    """`--format json` and `--json` are one option; no command has a format of its own beside them."""
    for path, command in every_command():
        options = [param for param in command.params if isinstance(param, click.Option)]
        names = {name for option in options for name in option.opts}
        format_flags = {name for option in options for name in option.opts} & {"--csv", "--markdown", "--latex"}
        assert not any(map(takes_all, options)) or "--json" in names, path
        assert format_flags == set(), path


@pytest.mark.nightly
@pytest.mark.parametrize("path", LINES)
@pytest.mark.usefixtures("world")
def test_a_command_prints_all_formats(path):
    """On the same figures; what it prints is read back as what it claims to be."""
    for form in FORMATS:
        with table_row(form):
            text = called(f"{path} {LINES[path]} --format {form}")
            check(form, text)
            if form in ("markdown", "latex"):
                assert (r"\toprule" if form == "latex" else "--- | ---" if path == "config rules" else "|---") in text
