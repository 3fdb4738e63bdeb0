"""Facts about building a release and checking it: for this machine, with no network."""

import json
import subprocess
import sys
import zipfile

import pytest
from click.testing import CliRunner

from edgemeter.provisioning.cli.release import release as release_command
from edgemeter.provisioning.release import wheels as release_wheels
from edgemeter.provisioning.release.manifest import read_release
from tests.fixtures import small_release

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def offline(releases, tmp_path, monkeypatch, pip_finds):
    """Return options that build a release for this machine out of the wheels of the fixture."""
    pip_finds(releases.folder / "packed")
    monkeypatch.chdir(tmp_path)
    wheel = small_release.edgemeter_wheel(tmp_path, "3.1")
    target = small_release.this_target()
    return ["--board", "pc" if target.arch == "x86_64" else "arm64", "--python", target.python_text, "--glibc", target.glibc_text,
            "--extras", "", "--wheel", str(wheel), "--signing-key-file", str(releases.key)]  # fmt: skip


def run(command, *arguments):
    """Return what a command did; what it raises is raised."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.needs("openssl")
def test_a_release_is_built_and_installs(releases, offline, tmp_path):
    """The command's file, by its own name, is verified, imported here, and becomes a release."""
    built = run(release_command, "build", *offline, "--format", "json")
    assert built.exit_code == 0, built.output
    document = json.loads(built.stdout)
    assert document["version"].startswith("3.1+")
    assert read_release(tmp_path / document["path"], releases.public).manifest.version == document["version"]
    command = small_release.install_command(document["path"], tmp_path / "opt", releases.public)
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert f"release {document['version']}" in completed.stdout


@pytest.mark.services
def test_a_distribution_packed_again_is_a_wheel_that_pip_installs(tmp_path):
    """Of what is installed here, with nothing that an installer wrote; the same bytes each time."""
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    wheel = release_wheels.repack_wheel("click", first)
    assert wheel.read_bytes() == release_wheels.repack_wheel("click", second).read_bytes()
    target = ["--no-index", "--no-deps", "--target", tmp_path / "site"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *target, wheel]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    assert (tmp_path / "site/click/core.py").exists()


@pytest.mark.services
def test_edgemeters_own_wheel_holds_what_a_board_needs(tmp_path):
    """Built from the source here: the installer, the supervisor, the boards and the models that ship."""
    names = set(zipfile.ZipFile(release_wheels.make_own_wheel(tmp_path)).namelist())
    assert {"edgemeter/provisioning/release/install.py", "edgemeter/provisioning/release/supervisor.py"} <= names
    assert {"edgemeter/provisioning/release/boards.toml", "edgemeter/agent/cli/main.py"} <= names
