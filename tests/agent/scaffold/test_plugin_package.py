"""Facts about `edgemeter new`: each kind's package installs, is found, and passes the contract as it is written."""

import ast
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import edgemeter.plugin
from edgemeter.agent.cli.main import cli
from edgemeter.agent.scaffold.plugin_package import KINDS, TEMPLATES
from tests.fixtures.own_imports import ROOT
from tests.fixtures.rows import table_row


def written(kind, name, folder):
    """Return what `edgemeter new` ended with."""
    return CliRunner().invoke(cli, ["new", kind, name, "--output", str(folder)])


@pytest.fixture
def site(tmp_path):
    """Return a site folder, and the environment of a process that sees it."""
    folder = tmp_path / "site"
    return folder, {**os.environ, "PYTHONPATH": str(folder)}


def install(package, site):
    """Install the package without a network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", site, package], check=True, capture_output=True)


def imported_of_ours(source):
    """Return what Python code imports of Edgemeter, as (module, name)."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {(node.module, alias.name) for node in statements if node.module.startswith("edgemeter") for alias in node.names}


def test_a_template_imports_the_public_module_alone(tmp_path):
    """No internal module, in no kind's package; and each name is there."""
    for kind in KINDS:
        written(kind, "mine", tmp_path / kind)
    for path in tmp_path.rglob("*.py"):
        with table_row(path):
            for module, name in imported_of_ours(path.read_text()):
                assert module == "edgemeter.plugin"
                assert hasattr(edgemeter.plugin, name)


@pytest.mark.long
@pytest.mark.slow
def test_a_new_package_passes_a_strict_type_checker(tmp_path):
    """As its owner would check it, with the names that the wheel brings."""
    for kind in KINDS:
        assert written(kind, f"my-{kind}", tmp_path).exit_code == 0
    modules = sorted(tmp_path.glob("edgemeter-*/edgemeter_*.py"))
    assert len(modules) == len(KINDS)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", *modules]
    environment = {**os.environ, "MYPYPATH": str(ROOT / ".types")}
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert completed.returncode == 0, completed.stdout


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
        result = CliRunner().invoke(cli, ["new", "--output", str(tmp_path), "sensor", "--", name])
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
