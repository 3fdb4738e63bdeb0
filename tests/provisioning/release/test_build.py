"""Facts about building a release and checking it: for this machine, with no network."""

import json
import subprocess
import sys
import zipfile

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.cli.release import release as release_command
from edgemeter.provisioning.release import wheels as release_wheels
from edgemeter.provisioning.release.release_file import read_release
from tests.fixtures import small_release

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def offline(releases, tmp_path, monkeypatch, pip_finds):
    """Return options that build a release for this machine out of the wheels of the fixture."""
    pip_finds(releases.folder / "packed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEMETER_FLEET_FOLDER", str(releases.folder))
    wheel = small_release.edgemeter_wheel(tmp_path, "3.1")
    target = small_release.this_target()
    return [
        "--board", "pc" if target.arch == "x86_64" else "arm64",
        "--python", target.python_text, "--glibc", target.glibc_text,
        "--extras", "", "--wheel", str(wheel),
    ]  # fmt: skip


def run(command, *arguments):
    return CliRunner().invoke(
        command, [str(argument) for argument in arguments], catch_exceptions=False
    )


@pytest.mark.needs("openssl")
def test_a_release_is_built_and_installs(releases, offline, tmp_path):
    """A release from the command is verified, can be imported, and installs under its own name."""
    built = run(release_command, "build", *offline, "--format", "json")
    assert built.exit_code == 0, built.output
    document = json.loads(built.stdout)
    assert document["version"].startswith("3.1+")
    assert (
        read_release(tmp_path / document["path"], releases.public).manifest.version
        == document["version"]
    )
    command = small_release.install_command(document["path"], tmp_path / "opt", releases.public)
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert f"release {document['version']}" in completed.stdout


@pytest.mark.needs("openssl")
def test_a_key_that_devices_will_not_trust_signs_nothing(releases, offline, tmp_path, monkeypatch):
    """A key is refused if release.pub in the release does not contain it.

    While the key is rotated, both keys are there.
    """
    (tmp_path / "fleet").mkdir()
    small_release.keys(tmp_path / "fleet")
    monkeypatch.setenv("EDGEMETER_FLEET_FOLDER", str(tmp_path / "fleet"))
    public = tmp_path / "fleet/release.pub"
    both = public.read_bytes() + releases.public.read_bytes()
    public.write_bytes(releases.public.read_bytes())
    with pytest.raises(
        ConfigError, match=r"release\.key' is not in .*release\.pub': no device would accept"
    ):
        run(release_command, "build", *offline)
    public.write_bytes(both)
    built = run(release_command, "build", *offline, "--format", "json")
    assert (
        read_release(tmp_path / json.loads(built.stdout)["path"], public).manifest.board
        == offline[1]
    )


@pytest.mark.services
def test_edgemeters_own_wheel_is_the_one_it_was_installed_from(tmp_path, monkeypatch):
    """Edgemeter's own wheel is the file that pip noted, or a message says what to do without it."""
    info = tmp_path / "site/edgemeter-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: edgemeter\nVersion: 9.9\n")
    wheel = small_release.edgemeter_wheel(tmp_path, "9.9")
    (info / "direct_url.json").write_text(json.dumps({"url": wheel.as_uri(), "archive_info": {}}))
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "made").mkdir()
    assert release_wheels.make_own_wheel(tmp_path / "made").read_bytes() == wheel.read_bytes()
    wheel.unlink()
    with pytest.raises(
        UnavailableError,
        match=r"edgemeter-9.9-py3-none-any.whl.*`edgemeter fleet release build --wheel FILE`",
    ):
        release_wheels.make_own_wheel(tmp_path / "made")


@pytest.mark.services
def test_edgemeters_own_wheel_holds_what_a_board_needs(tmp_path):
    """The wheel built from this source holds installer, supervisor, boards and shipped models."""
    names = set(zipfile.ZipFile(release_wheels.make_own_wheel(tmp_path)).namelist())
    assert {
        "edgemeter/provisioning/release/install.py",
        "edgemeter/provisioning/release/supervisor.py",
    } <= names
    assert {"edgemeter/provisioning/release/boards.toml", "edgemeter/agent/cli/main.py"} <= names
