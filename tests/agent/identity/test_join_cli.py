"""`edgemeter agent join`: what it says and how it ends, whatever is there of the fleet."""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.cli.agent import agent
from edgemeter.agent.contract import identity
from edgemeter.agent.identity import identity as identity_identity
from tests.fixtures.rows import in_folders
from tests.provisioning.identity.lab import Lab

NO_CA = "-----BEGIN CERTIFICATE-----\nMIIx\n-----END CERTIFICATE-----\n"


@pytest.fixture
def lab(tmp_path):
    """Return a fleet of which nothing runs yet."""
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)


def run(lab, path, *options):
    places = ["--home", str(lab.path / "home"), "--config", str(lab.path / "config.toml")]
    result = CliRunner().invoke(agent, ["join", str(path), *places, *options])
    if result.exception is not None:
        raise result.exception
    assert (
        f"EDGEMETER_HOME={lab.path}/home edgemeter agent up --config {lab.path}/config.toml\n"
        in result.stderr
    )
    return result.stdout


@pytest.mark.services
def test_it_joins_once_and_reports_that_again_without_a_network(lab):
    """The second call asks nothing, because the service is gone by then.

    A service of another authority gets no token.
    """
    server = lab.serve_boards()
    path = lab.token("pi-1")
    copy = lab.path / "copy.toml"
    shutil.copy(path, copy)
    foreign = Lab(lab.path / "foreign", lab.stack).folder.ca_certificate.read_text()
    text = path.read_text()
    begin, end = text.index("-----BEGIN"), text.index("-----END")
    path.write_text(text[:begin] + foreign.split("-----END")[0] + text[end:])
    with pytest.raises(TransientError, match="is not valid"):
        run(lab, path, "--timeout", "2")
    path.write_text(text)
    assert "pi-1 joined the fleet 'lab'" in run(lab, path)
    server.stop()
    assert "pi-1 joined the fleet 'lab'" in run(lab, path)
    # The same file once more, as a power cut before it was wiped would leave it.
    assert "pi-1 joined the fleet 'lab'" in run(lab, copy)
    assert identity.read_join_file(copy).token is None


@pytest.mark.nightly
def test_it_waits_for_a_service_that_starts_later(lab):
    """Boards may be powered before the server is."""
    path = lab.token("pi-1")
    lines = []
    thread = threading.Thread(target=lambda: lines.append(run(lab, path, "--timeout", "60")))
    thread.start()
    time.sleep(4.0)
    lab.serve_boards()
    thread.join(300)
    assert lines == [f"pi-1 joined the fleet 'lab' at mqtts://127.0.0.1:{lab.port}\n"]


@pytest.mark.nightly
def test_killed_at_any_moment_it_joins_the_next_time(lab):
    """A board killed twelve times, after 0 to 1.2 seconds, still joins with its token.

    One certificate is valid, and the card is clean.
    """
    lab.serve_boards()
    path = lab.token("pi-1")
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "agent",
        "join",
        str(path),
        "--timeout",
        "30",
    ]
    command += ["--home", str(lab.path / "home"), "--config", str(lab.path / "config.toml")]
    for tenth in range(12):
        with subprocess.Popen(
            command, env={**os.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(tenth / 10)
            process.kill()
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (completed.returncode, "Traceback" in completed.stderr) == (0, False), completed.stderr
    assert identity.read_join_file(path).token is None
    assert identity_identity.read_identity(lab.path / "home").device == "pi-1"
    listed = lab.registry.query("SELECT * FROM certificates WHERE revoked_ns IS NULL")
    assert len(listed) == 1


def join(tmp_path, **changes):
    fields = {
        "fleet": "lab",
        "device": "pi-1",
        "broker": "mqtts://b:8883",
        "service": "https://b:8443",
        "ca": NO_CA,
        "token": "t" * 32,
    }
    path = tmp_path / "join.toml"
    path.write_text(identity.join_file_text(identity.JoinFile(**{**fields, **changes})))
    result = CliRunner().invoke(
        agent,
        [
            "join",
            str(path),
            "--home",
            str(tmp_path / "home"),
            "--config",
            str(tmp_path / "config.toml"),
        ],
    )
    assert identity.read_join_file(path).token == {**fields, **changes}["token"]
    return result.exception


def test_a_join_file_that_cannot_serve_is_reported_before_anything_is_sent(tmp_path):
    """The mistake is found in the file, so the token is kept until it is corrected.

    The token is sent over TLS only.
    """
    for folder, changes, words in in_folders(
        tmp_path,
        [
            ({"token": None}, "no token any more"),
            ({}, "contains no CA certificate"),
            ({"ca": "MII"}, "contains no CA certificate"),
            *(
                ({"service": address}, "over TLS only")
                for address in ("mqtts://b:8884", "b:8443", "http://b")
            ),
        ],
    ):
        error = join(folder, **changes)
        assert isinstance(error, ConfigError)
        assert words in str(error)
