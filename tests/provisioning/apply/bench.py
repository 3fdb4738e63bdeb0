"""A fleet with a release and one device behind a real sshd.

Everything that is installed goes below a folder of the test.
"""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from edgemeter.provisioning.apply import applying, board, bring, facts
from edgemeter.provisioning.apply.applying import Applying
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release import release_file
from tests.fixtures import device_release
from tests.fixtures.ssh_server import sshd

JOIN = 'fleet = "lab"\ntoken = "secret-token"\n'


class Bench:
    """One device, and what it is given; `close` it.

    `look` and `on_device` are the programs that it runs: for them, the folder `prefix` is the
    device, and who runs the tests is its root.
    """

    def __init__(self, folder, user=None):
        self.folder = folder
        self.fleet = FleetFolder(folder / "fleet")
        self.device = sshd(folder / "device", user)
        self.prefix = folder / "prefix"
        self.prefix.mkdir()
        self.look = facts.LOOK.read_text().replace('"$(id -u)" = 0', f'"$(id -u)" = {os.geteuid()}')
        self.on_device = applying.ON_DEVICE.read_text().replace(
            '"prefix": ""', f'"prefix": {str(self.prefix)!r}'
        )
        self.releases = [device_release.make(folder / "release", self.fleet)]
        self.said = []
        self.tokens = []

    def close(self):
        self.device.server.kill()

    def join_file(self, device):
        self.tokens.append(device)
        return JOIN

    def settings(self, **changed):
        settings = {
            "releases": [
                release_file.read_release(path, self.fleet.release_public_key)
                for path in self.releases
            ],
            "public_key": self.fleet.release_public_key.read_text(),
            "join_file": self.join_file,
            "ssh_options": self.device.options(),
        }
        return Applying(**{**settings, **changed})

    @contextlib.contextmanager
    def is_the_device(self):
        """Let the folder be the device for the block."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(applying, "ROOT", f"{self.prefix}/opt/edgemeter")
            for module, name, text in (
                (board, "LOOK", self.look),
                (applying, "ON_DEVICE", self.on_device),
            ):
                path = self.folder / name
                path.write_text(text)
                patch.setattr(module, name, path)
            yield

    def apply(self, target=None, **changed):
        with self.is_the_device():
            return self.settings(**changed).to_device(target or self.device.target(), self.told)

    def told(self, *words):
        self.said.append(words)

    @property
    def staged(self) -> Path:
        """The folder in which the device keeps the files that are copied to it."""
        return self.device.home / bring.STAGED

    @property
    def current(self):
        link = self.prefix / "opt/edgemeter/current"
        return link.readlink().name if link.is_symlink() else None

    def imports(self, module):
        """Return whether the agent's Python imports that module."""
        python = self.prefix / "opt/edgemeter/current/bin/python"
        return (
            subprocess.run(
                [python, "-c", f"import {module}"], check=False, capture_output=True
            ).returncode
            == 0
        )

    def tree(self):
        """Return every file below the prefix with when it was written."""
        return {
            path: path.lstat().st_mtime_ns for path in self.prefix.rglob("*") if not path.is_dir()
        }


def states(outcome):
    return {step.step: step.state for step in outcome.steps}
