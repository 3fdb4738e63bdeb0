"""Facts about `edgemeter new`: each kind's package installs, is found, and passes the contract as it is written."""

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from edgemeter.agent.cli.main import cli
from edgemeter.agent.scaffold.plugin_package import KINDS, TEMPLATES
from tests.fixtures.rows import table_row


def written(kind, name, folder):
    """Return what `edgemeter new` ended with."""
    return CliRunner().invoke(cli, ["new", kind, name, "--out", str(folder)])


@pytest.fixture
def site(tmp_path):
    """Return a site folder, and the environment of a process that sees it."""
    folder = tmp_path / "site"
    return folder, {**os.environ, "PYTHONPATH": str(folder)}


def install(package, site):
    """Install the package without a network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", site, package], check=True, capture_output=True)


def test_what_a_template_imports_is_there():
    """A name that has moved is found at once, not by the slow test below."""
    for template in sorted(TEMPLATES.glob("*.in")):
        with table_row(template):
            for module, names in re.findall(r"^from (edgemeter[\w.]*) import ([\w, ]+)$", template.read_text(), re.MULTILINE):
                for name in names.split(", "):
                    imported = import_module(module)
                    assert hasattr(imported, name) or find_spec(f"{module}.{name}"), f"{module} has no {name}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_passes_its_contract_from_the_first_minute(kind, tmp_path, site):
    """Written, installed into a folder of its own, and tested as its owner would, in strict mode."""
    assert written(kind, "my-own_1", tmp_path).exit_code == 0
    package = tmp_path / "edgemeter-my-own-1"
    install(package, site[0])
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", package / "tests"]
    # Plug-ins of pytest that are here by chance may warn at their import, which `-W error` would take for ours.
    alone = {**site[1], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=alone, cwd=package)
    assert completed.returncode == 0, completed.stdout
    passed = int(completed.stdout.rpartition(" passed")[0].rpartition("\n")[2].split()[-1])
    assert passed == len(__import__(f"edgemeter.agent.conformance.{kind}s", fromlist=["CHECKS"]).CHECKS)
    assert "skipped" not in completed.stdout


@pytest.mark.slow
def test_a_new_runtime_is_measured(tmp_path, site):
    """`edgemeter run` finds it by its entry point, in the process that measures too."""
    written("runtime", "mine", tmp_path)
    package = tmp_path / "edgemeter-mine"
    install(package, site[0])
    model = package / "tests" / "fixture" / "model.mine"
    options = ("--runtime", "mine", "--mode", "rapid", "--repeats", "1", "--json")
    command = [sys.executable, "-m", "edgemeter.agent.cli", "run", "--model", model, *options]
    environment = {**site[1], "EDGEMETER_HOME": str(tmp_path / "home")}
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert completed.returncode == 0, completed.stderr
    assert '"package": "edgemeter-mine"' in completed.stdout or '"package":"edgemeter-mine"' in completed.stdout


def test_a_name_that_no_plug_in_can_have_is_refused(tmp_path):
    """Before anything is written."""
    for name in ["My", "1st", "a b", "-a", "a-", "a/b", "a.b", ""]:
        result = CliRunner().invoke(cli, ["new", "--out", str(tmp_path), "sensor", "--", name])
        assert "cannot be the name of a sensor" in str(result.exception), f"{name!r}"
        assert list(tmp_path.iterdir()) == [], f"{name!r}"


def test_a_name_that_is_taken_is_refused(tmp_path):
    """Ours would be found in its place."""
    for kind, name in [("runtime", "onnx"), ("sensor", "rapl"), ("task", "detection"), ("decoder", "yolo26")]:
        assert "is already installed" in str(written(kind, name, tmp_path).exception), f"{kind!r}, {name!r}"


def test_nothing_is_overwritten(tmp_path):
    """A second time, and where the folder cannot be made."""
    written("task", "mine", tmp_path)
    assert "exists already" in str(written("task", "mine", tmp_path).exception)
    (tmp_path / "file").write_text("")
    assert "cannot write" in str(written("task", "mine", tmp_path / "file").exception)


def test_every_template_is_used():
    """A module, a test and a fixture of each kind, and two files of all."""
    templates = {"pyproject.in", "readme.in", *(f"{kind}{part}.in" for kind in KINDS for part in ("", "_test", "_fixture"))}
    assert {path.name for path in TEMPLATES.iterdir()} == templates
