"""`fleet apply` against a real sshd on loopback: everything goes below a folder of the test's, nothing is started."""

import contextlib

import pytest

from edgemeter.provisioning.apply import applying, offer
from edgemeter.provisioning.apply.applying import Settings, Wish
from edgemeter.provisioning.fleet_folder import FleetFolder
from tests.fixtures import device_bundle
from tests.fixtures.ssh_server import sshd

JOIN = 'fleet = "lab"\ntoken = "secret-token"\n'


class Bench:
    """A fleet with one bundle, and one device behind a real sshd."""

    def __init__(self, folder, user=None, installer=device_bundle.QUICK):
        self.folder = folder
        self.fleet = FleetFolder(folder / "fleet")
        self.device = sshd(folder / "device", user)
        self.prefix = folder / "prefix"
        self.prefix.mkdir()
        self.bundles = [device_bundle.make(folder / "bundle", self.fleet, installer=installer)]
        self.said = []
        self.tokens = []

    def close(self):
        """End its sshd."""
        self.device.server.kill()

    def join_file(self, device):
        """Return a join file and remember for whom."""
        self.tokens.append(device)
        return JOIN

    def settings(self, **changed):
        """Return what is the same for all devices."""
        offers = [offer.read(bundle, self.fleet.release_public_key, self.folder) for bundle in self.bundles]
        return Settings(
            **{
                "offers": offers,
                "public_key": self.fleet.release_public_key.read_text(),
                "join_file": self.join_file,
                "ssh": self.device.options(),
                "prefix": str(self.prefix),
                "sysfs": str(self.folder / "sys"),
                **changed,
            }
        )

    def apply(self, wish=None, **changed):
        """Apply to the device."""
        wish = wish or Wish(self.device.target())
        return applying.apply(wish, self.settings(**changed), lambda device, what: self.said.append((device, what)))

    @property
    def current(self):
        """The release that the device runs."""
        link = self.prefix / "opt/edgemeter/current"
        return link.readlink().name if link.is_symlink() else None

    def tree(self):
        """Return every file below the prefix with when it was written."""
        return {path: path.lstat().st_mtime_ns for path in self.prefix.rglob("*") if not path.is_dir() and path.name != ".apply.lock"}


@pytest.fixture
def bench(tmp_path):
    """Return the bench; its sshd ends with the test."""
    with contextlib.closing(Bench(tmp_path)) as made:
        yield made


def states(outcome):
    """Return the steps with what they came to."""
    return {step.step: step.state for step in outcome.steps}


def test_a_fresh_board_gets_everything_and_a_repeated_run_changes_nothing(tmp_path):
    """Copied, installed by the real installer, joined, configured; the second time each step says that it is so already."""
    with contextlib.closing(Bench(tmp_path, installer=None)) as bench:
        _apply_twice(bench)


def _apply_twice(bench):
    first = bench.apply()
    assert first.remedy is None
    assert (first.state, bench.current, bench.tokens) == ("changed", "1.0.0", ["board"])
    assert states(first)["copy"] == states(first)["release"] == states(first)["join"] == "changed"
    before = bench.tree()
    second = bench.apply()
    assert (second.state, second.remedy) == ("ok", None)
    assert set(states(second).values()) <= {"ok", "skipped"}
    assert "copy" not in states(second)
    assert (bench.tree(), bench.tokens) == (before, ["board"])


def test_what_the_board_needed_of_us_does_not_stay_there(bench):
    """Neither the bundle's copy nor the join file with its token."""
    assert bench.apply().remedy is None
    assert not (bench.device.home / applying.STAGE).exists()
    left = [path for path in bench.prefix.rglob("*") if path.is_file() and b"secret-token" in path.read_bytes()]
    assert left == []


def test_a_newer_bundle_replaces_the_release(bench):
    """And an older one does not."""
    assert bench.apply().state == "changed"
    bench.bundles = [device_bundle.make(bench.folder / "newer", bench.fleet, version="1.1.0", installer=device_bundle.QUICK)]
    assert states(bench.apply())["release"] == "changed"
    assert bench.current == "1.1.0"
    bench.bundles = [bench.folder / "bundle"]
    again = bench.apply()
    assert (states(again)["release"], bench.current) == ("skipped", "1.1.0")


def test_a_dry_run_says_the_same_and_does_nothing(bench):
    """Neither below the prefix nor in the home folder; no token is made."""
    outcome = bench.apply(is_dry=True)
    assert outcome.remedy is None
    assert states(outcome)["release"] == states(outcome)["service"] == states(outcome)["join"] == "changed"
    assert (list(bench.prefix.iterdir()), list(bench.device.home.iterdir()), bench.tokens) == ([], [], [])
