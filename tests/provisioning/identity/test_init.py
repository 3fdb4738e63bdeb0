"""`edgemeter fleet init`: makes what is missing, and nothing else."""

import json
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.identity import authority
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.usefixtures("no_broker")


def run(folder, *arguments):
    return run_fleet(folder, "init", *arguments).stdout


def content(folder):
    """Return every file with what it holds; SQLite's own beside the registry left out."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def test_a_second_time_changes_nothing(tmp_path):
    """A second `init` changes not one byte and reports that.

    The folder and each private key in it are their owner's alone.
    """
    first = json.loads(
        run(
            tmp_path / "f",
            "--broker",
            "broker.example",
            "--broker-name",
            "192.0.2.10",
            "--broker-name",
            "::1",
            "--format",
            "json",
        )
    )
    assert str(tmp_path / "f" / "ca.crt") in {file["path"] for file in first["made"]}
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o700
    keys = [*(tmp_path / "f").rglob("*.key"), tmp_path / "f" / "registry.sqlite"]
    assert len(keys) == 7
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    before = content(tmp_path / "f")
    assert json.loads(run(tmp_path / "f", "--format", "json"))["made"] == []
    assert "nothing to make" in run(tmp_path / "f")
    assert "nothing to make" in run(
        tmp_path / "f", "--broker-name", "0:0:0:0:0:0:0:1", "--broker-name", "BROKER.example"
    )
    assert content(tmp_path / "f") == before


def test_a_new_fleet_is_a_few_lines(tmp_path):
    """A new fleet is reported in a few lines.

    They name the files, the commands that start it, what to know about the release key, and the
    next command.
    """
    printed = run_fleet(tmp_path / "f", "init", "--broker", "broker.example")
    assert len(printed.output.splitlines()) <= 8
    (first_line,) = printed.stdout.splitlines()
    assert "ca.crt" in first_line
    assert f"edgemeter fleet --folder {tmp_path / 'f'} token DEVICE" in printed.stderr
    assert "--release-public-key" in printed.stderr


def test_commands_on_the_default_fleet_need_no_folder(tmp_path, monkeypatch):
    """The folder in the environment is the default, so that commands need no option."""
    monkeypatch.setenv("EDGEMETER_FLEET_FOLDER", str(tmp_path / "f"))
    assert (
        "edgemeter fleet token DEVICE"
        in run_fleet(tmp_path / "f", "init", "--broker", "broker.example").stderr
    )


def test_a_new_name_renews_the_brokers_certificate_alone(tmp_path):
    """A new name renews only the broker's certificate, which holds the old names too."""
    folder = tmp_path / "f"
    run(folder, "--broker", "broker.example", "--broker-name", "192.0.2.10")
    before = content(folder)
    run(folder, "--broker-name", "other.example")
    after = content(folder)
    assert {path.name for path in after if after[path] != before[path]} == {
        "broker.crt",
        "broker.key",
    }
    assert authority.names_of((folder / "broker/broker.crt").read_bytes()) == {
        "broker.example",
        "192.0.2.10",
        "other.example",
    }


def test_what_was_lost_is_made_again(tmp_path):
    """A lost file is made again by the same authority, and each pair of files fits.

    One file is gone, or an earlier run was cut off before it.
    """
    folder = tmp_path / "f"
    run(folder, "--broker", "broker.example")
    before = content(folder)
    certificate = (folder / "ca.crt").read_bytes()
    for path in sorted(before):
        if (
            path.name in {"ca.crt", "ca.key", "registry.sqlite", "release.key"}
            or "revoked" in path.parts
        ):
            continue
        path.unlink()
        run(folder, "--broker", "broker.example")
        assert path.exists(), path
        assert (folder / "ca.crt").read_bytes() == certificate, path
        for name in ("collector", "fleet", "operator", "broker/broker"):
            public = x509.load_pem_x509_certificate(
                (folder / f"{name}.crt").read_bytes()
            ).public_key()
            private = serialization.load_pem_private_key(
                (folder / f"{name}.key").read_bytes(), None
            )
            assert public == private.public_key(), (path, name)


def test_half_an_authority_is_not_replaced(tmp_path):
    """Half an authority is an error, because a new authority would lock out every device.

    Somebody has to look. A key alone was cut off before anything was signed with it, and may be
    replaced.
    """
    folder = tmp_path / "f"
    folder.mkdir(mode=0o700)
    (folder / "ca.key").write_text("half")
    run(folder, "--broker", "broker.example")
    assert "nothing to make" in run(folder)
    (folder / "ca.key").unlink()
    with pytest.raises(ConfigError, match=r"only ca.crt is left"):
        run(folder)


def test_an_option_that_differs_from_the_inventory_is_a_question(tmp_path):
    """An option that differs from the inventory is refused, as the inventory is where it changes.

    A missing broker and impossible names are errors.
    """
    for arguments, why in (
        ([], "--broker HOST"),
        (["--broker", "b", "--fleet", "a/b"], "'a/b'"),
        (["--broker", "bröker"], "ASCII"),
    ):
        with table_row(arguments), pytest.raises(ConfigError, match=why):
            run(tmp_path / "none", *arguments)
    run(tmp_path / "f", "--broker", "broker.example")
    for arguments, key in (
        (("--broker", "other"), "broker"),
        (("--fleet", "other"), "fleet"),
        (("--https-port", "8886"), "https_port"),
        (("--service", "x"), "service"),
    ):
        with table_row(arguments), pytest.raises(ConfigError, match=f"sets {key} = "):
            run(tmp_path / "f", *arguments)
    assert "nothing to make" in run(
        tmp_path / "f", "--broker", "broker.example", "--fleet", "default", "--port", "8883"
    )
