"""Tests of the markers that say what a test needs of the machine.

They are looked at before the test's fixtures, and the table of the markers is complete.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import requirements

ROOT = Path(__file__).resolve().parents[2]
# Markers that say when a test runs or how long it takes; `needs` names what it needs itself,
# `packaging` and `hardware` need no program.
NO_ROW = {
    "limit_s",
    "services",
    "nightly",
    "command",
    "python",
    "alone",
    "packaging",
    "hardware",
    "needs",
}
SKIPS = """import pytest

@pytest.fixture
def server():
    raise AssertionError("a fixture ran")

@pytest.mark.mosquitto
def test_broker(server):
    raise AssertionError("the test ran")

@pytest.mark.needs("cp", "no-such-program")
def test_program(server):
    raise AssertionError("the test ran")

@pytest.mark.needs(module="no_such_module")
def test_module(server):
    raise AssertionError("the test ran")

MOSQUITTO = pytest.param("mosquitto", marks=pytest.mark.mosquitto)

@pytest.mark.parametrize("broker", [MOSQUITTO, "embedded"])
def test_parameter(broker):
    assert broker == "embedded"

@pytest.mark.needs(module="json")
def test_present():
    pass

@pytest.mark.loadgen
@pytest.mark.mlserver
def test_both(server):
    raise AssertionError("the test ran")
"""


def test_every_marker_that_needs_something_has_a_row(pytestconfig):
    """The table has a row for each marker of pyproject.toml that needs something, and no other."""
    names = {re.match(r"\w+", line)[0] for line in pytestconfig.getini("markers")[: _own_markers()]}
    assert names - NO_ROW == set(requirements.NEEDS)


def _own_markers() -> int:
    text = (ROOT / "pyproject.toml").read_text()
    return len(
        re.findall(
            r'^    "\w+', text.partition("\nmarkers = [\n")[2].partition("\n]")[0], re.MULTILINE
        )
    )


@pytest.fixture
def bare_run(tmp_path):
    """Return what pytest prints of SKIPS with only `cp` on the PATH, by this project's conftest."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cp").symlink_to(shutil.which("cp"))
    (tmp_path / "test_bare.py").write_text(SKIPS)

    def run(**environment):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.conftest",
            "-c",
            ROOT / "pyproject.toml",
            "--rootdir",
            tmp_path,
        ]
        bare = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), **environment}
        bare |= {
            name: os.environ[name]
            for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
            if name in os.environ
        }
        return subprocess.run(
            [*command, tmp_path / "test_bare.py"],
            cwd=ROOT,
            env=bare,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.needs("cp")
def test_a_test_without_what_it_needs_is_skipped_before_its_fixtures(bare_run):
    """A test without what it needs is skipped before its fixtures, with the remedy.

    The reason names what is absent and how to get it; a parameter's marker skips that parameter
    alone.
    """
    result = bare_run()
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed, 5 skipped" in result.stdout
    for reason in (
        "apt-get install mosquitto",
        "apt-get install no-such-program",
        "pip install no_such_module",
    ):
        assert reason in result.stdout


@pytest.mark.needs("cp")
def test_what_must_run_and_is_skipped_fails_the_run(bare_run):
    """A skip by a marker or a program of EDGEMETER_MUST_RUN fails the run.

    A test that also needs something else, which need not be everywhere, may be skipped for that.
    """
    for markers, status in (
        ("loadgen", 0),
        ("mosquitto", 1),
        ("loadgen,mlserver", 1),
        ("no-such-program", 1),
    ):
        result = bare_run(EDGEMETER_MUST_RUN=markers)
        assert result.returncode == status, markers + result.stdout + result.stderr
    assert bare_run(EDGEMETER_MUST_RUN="mosquitto").stdout.count("test_bare.py::test_broker") == 1


def test_a_helper_whose_program_is_absent_names_the_marker(monkeypatch, tmp_path):
    """A test that starts a program without its marker fails with the marker's name."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RuntimeError,
        match="mosquitto is not on PATH: the test that starts it must carry the marker `mosquitto`",
    ):
        requirements.program("mosquitto", marker="mosquitto")
    with pytest.raises(RuntimeError, match=r'must carry the marker `needs\("gcc"\)`'):
        requirements.program("gcc")


@pytest.mark.needs("dpkg-query", "openssl", "unshare")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root hides programs from their absolute paths")
def test_a_bare_machine_has_no_further_program_at_its_absolute_path_either():
    """`.ci/bare` hides even a program's absolute path, unless the base machine has it.

    It keeps the programs of Debian's base, Python, git and make; openssl is none of them.
    """
    address = shutil.which("openssl")
    assert subprocess.run([address, "version"], check=False).returncode == 0
    bare = subprocess.run(
        [ROOT / ".ci/bare", address, "version"], capture_output=True, text=True, check=False
    )
    assert bare.returncode != 0
    assert "Permission denied" in bare.stderr
    assert (
        subprocess.run([ROOT / ".ci/bare", "python3", "-c", "print()"], check=False).returncode == 0
    )


def test_postgresql_is_where_a_program_on_path_leads(monkeypatch, tmp_path):
    """PostgreSQL's folder is that of `initdb`, which may be a link into it.

    If EDGEMETER_POSTGRESQL is set, it alone counts.
    """
    monkeypatch.delenv("EDGEMETER_POSTGRESQL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert requirements.postgresql_folder() is None
    folder, links = tmp_path / "postgresql", tmp_path / "links"
    folder.mkdir()
    links.mkdir()
    for name in ("initdb", "pg_basebackup"):
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    (links / "initdb").symlink_to(folder / "initdb")
    for on_path in (folder, links):
        monkeypatch.setenv("PATH", str(on_path))
        assert requirements.postgresql_folder() == folder
    monkeypatch.setenv("EDGEMETER_POSTGRESQL", str(tmp_path / "absent"))
    assert requirements.postgresql_folder() is None
