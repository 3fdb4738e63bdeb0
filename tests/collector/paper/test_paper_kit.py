"""Facts about `edgemeter report -o paper.zip`: whoever unpacks it makes the same tables again, byte for byte."""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.bundle.write import write_bundle
from edgemeter.agent.cli.main import cli
from edgemeter.collector.paper import kit
from tests.fixtures.bundle_factory import CASE, make_sound_record
from tests.fixtures.comparison_factory import document, make_run
from tests.fixtures.record_factory import STARTED_AT_NS


def report(*arguments):
    """Return what `edgemeter report` does."""
    return CliRunner().invoke(cli, ["report", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def sources(tmp_path):
    """Return a folder of a bundle and a document of three runs."""
    folder = tmp_path / "runs"
    folder.mkdir()
    write_bundle(folder, make_sound_record(), CASE)
    runs = [make_run("pi-2", p50_ms=10 + number / 10, started_at_ns=STARTED_AT_NS + number * 10**9) for number in range(3)]
    (folder / "runs.json").write_bytes(document(*runs))
    return folder


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kept_as", ["both", *(pytest.param(source, marks=pytest.mark.slow) for source in ("records", "bundles"))])
def test_the_commands_of_the_archive_make_the_same_tables_in_an_empty_home(tmp_path, sources, kept_as):
    """As its README has them, but for the installation; nothing but the archive is there."""
    source = {"both": sources, "records": sources / "runs.json", "bundles": next(sources.glob("*.edgemeter"))}[kept_as]
    assert report(source, "-o", tmp_path / "paper.zip").exit_code == 0
    unpacked, home = tmp_path / "unpacked", tmp_path / "home"
    home.mkdir()
    with zipfile.ZipFile(tmp_path / "paper.zip") as packed:
        packed.extractall(unpacked)
    lines = re.findall(r"^\$ (.+)$", (unpacked / "README.md").read_text(), re.MULTILINE)
    assert lines[0].startswith("pip install 'edgemeter[report,sign]==")
    environment = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in lines[1:]:
        completed = subprocess.run(
            ["bash", "-c", line], cwd=unpacked, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert completed.returncode == 0, (line, completed.stdout, completed.stderr)
    assert [line.split()[:2] for line in lines[1:] if line.startswith("edgemeter")] == [
        *([["edgemeter", "bundle"]] if kept_as != "records" else []), ["edgemeter", "report"],
    ]  # fmt: skip
    for name in ("tables.tex", "methods.tex", *(f"plots/{plot.name}" for plot in (unpacked / "plots").glob("*.svg"))):
        assert (unpacked / name).read_bytes() == (unpacked / "again" / name).read_bytes()
    assert not list(home.iterdir())


def test_a_bundle_is_in_the_archive_as_it_was(tmp_path, sources):
    """So that its signature still holds; its run is not there a second time."""
    report(sources, "-o", tmp_path / "paper.zip")
    (bundle,) = sources.glob("*.edgemeter")
    with zipfile.ZipFile(tmp_path / "paper.zip") as packed:
        assert packed.read(f"bundles/{bundle.name}") == bundle.read_bytes()
        assert bundle.stem.encode() not in packed.read("records.json")
        for line in packed.read("SHA256SUMS").decode().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha256(packed.read(name)).hexdigest() == digest


def test_tables_alone_are_those_of_the_archive(tmp_path, sources):
    """And a selection is one of both."""
    report(sources, "-o", f"{tmp_path}/paper/")
    report(sources, "-o", tmp_path / "tables.tex")
    assert (tmp_path / "tables.tex").read_bytes() == (tmp_path / "paper" / "tables.tex").read_bytes()
    report(sources, "--device", "pi-2", "-o", tmp_path / "one.tex")
    assert "pi-1" not in (tmp_path / "one.tex").read_text()


def test_latex_prints_the_same_tables_and_writes_no_file(tmp_path, sources, monkeypatch):
    """The talk goes to standard error; a file is asked for with --output alone."""
    monkeypatch.chdir(tmp_path)
    report(sources, "-o", "tables.tex")
    before = sorted(tmp_path.iterdir())
    printed = report(sources, "--latex")
    assert printed.stdout_bytes == (tmp_path / "tables.tex").read_bytes()
    assert "tables: 4 runs" in printed.stderr
    assert sorted(tmp_path.iterdir()) == before
    refused = report(sources, "--latex", "-o", "other.tex")
    assert refused.exit_code == 2
    assert "use --output FILE.tex alone" in refused.stderr


def test_a_place_that_cannot_be_written_is_one_line(sources):
    """The error asks for a writable place."""
    with pytest.raises(UnavailableError, match="give a writable place"):
        report(sources, "-o", sources / "runs.json" / "tables.tex")


def test_an_archive_names_its_runs_and_version():
    """Its README is made of what is in it."""
    files = kit.kit([make_run()], {}, "current", "9.9.9")
    readme = files["README.md"].decode()
    assert "Made by Edgemeter 9.9.9 from 1 run." in readme
    assert "bundle verify" not in readme
    assert set(re.findall(r"`([\w.]+)`", readme)) >= {"tables.tex", "methods.tex", "records.json", "SHA256SUMS"}
