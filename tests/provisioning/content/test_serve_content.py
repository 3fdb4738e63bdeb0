"""`fleet serve` hands out content over HTTP too, where it is told to."""

import contextlib
import re
import subprocess
import sys
import urllib.request

import pytest

from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.servers import mosquitto

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def served(tmp_path):
    """Return the fleet's folder and the lines of a service that runs, with the options."""
    broker = mosquitto(tmp_path)
    broker.start()
    folder = FleetFolder(tmp_path / "fleet")
    folder.path.mkdir()
    with contextlib.ExitStack() as ends:
        ends.callback(broker.kill)

        def start(*options):
            command = [
                sys.executable,
                "-m",
                "edgemeter.agent.cli.main",
                "fleet",
                "serve",
                "--folder",
                folder.path,
                "--broker",
                f"127.0.0.1:{broker.port}",
            ]
            process = subprocess.Popen([*map(str, command), *options], stderr=subprocess.PIPE, text=True)
            ends.callback(process.communicate)
            ends.callback(process.terminate)
            return process.stderr

        yield folder, start


def test_content_is_served_at_the_port_that_is_said(served):
    """Without certificates on this machine alone."""
    folder, start = served
    put = ContentStore(folder.content).put_bytes(b"abc", "model")
    url = next(
        found[1] for line in start("--content-port", "0") if (found := re.search(r"content at (http://127\.0\.0\.1:\d+/content)", line))
    )
    with urllib.request.urlopen(f"{url}/{put.sha256}", timeout=150) as answer:  # noqa: S310 - our own server
        assert answer.read() == b"abc"


def test_an_address_that_can_be_reached_from_elsewhere_needs_certificates(served):
    """One line, and the remedy."""
    _, start = served
    said = start("--content-port", "0", "--content-listen", "0.0.0.0").read()  # noqa: S104 - refused
    assert "edgemeter fleet init" in said
    assert "Traceback" not in said
