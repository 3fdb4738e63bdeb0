"""`fleet serve` hands out content over HTTP too, at the `content_url` of fleet.toml."""

import contextlib
import subprocess
import sys
import urllib.request

import pytest

from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.servers import free_port, mosquitto

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def served(tmp_path):
    """Return the fleet's folder and the lines of a service that runs, with that `content_url`."""
    broker = mosquitto(tmp_path)
    broker.start()
    folder = FleetFolder(tmp_path / "fleet")
    folder.path.mkdir()
    with contextlib.ExitStack() as ends:
        ends.callback(broker.kill)

        def start(content_url):
            folder.fleet_file.write_text(f'fleet = "lab"\n[server]\nbroker = "127.0.0.1"\ncontent_url = "{content_url}"\n')
            words = ["fleet", "--folder", str(folder.path), "serve", "--broker", f"127.0.0.1:{broker.port}"]
            command = [sys.executable, "-m", "edgemeter.agent.cli.main", *words]
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            ends.callback(process.communicate)
            ends.callback(process.terminate)
            return process.stderr

        yield folder, start


def test_content_is_served_where_devices_fetch_it(served):
    """Without certificates on this machine alone."""
    folder, start = served
    put = ContentStore(folder.content).put_bytes(b"abc", "model")
    url = f"http://127.0.0.1:{free_port()}/content"
    assert any(f"content at {url}" in line for line in start(url))
    with urllib.request.urlopen(f"{url}/{put.sha256}", timeout=150) as answer:  # noqa: S310 - our own server
        assert answer.read() == b"abc"
