"""Making the broker do what the registry says, when that does not work at once."""

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import broker_files, enforcement
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.registry import certificates
from tests.provisioning.identity.lab import now


def told_by(lab, command):
    """Let the broker be told by a command."""
    text = lab.folder.fleet_file.read_text()
    lab.folder.fleet_file.write_text(text.split("broker_reload")[0].rstrip() + f"\nbroker_reload = {command}\n")


def test_a_broker_elsewhere_that_could_not_be_notified_is_notified_later(lab, tmp_path, monkeypatch):
    """The files changed once, and the command is owed until it succeeds; not run twice a second."""
    told_by(lab, '["false"]')
    broker_enforcement = Enforcement(lab.folder, lab.registry, broker_files.authority(lab.folder))
    lab.folder.revoked.unlink()
    with pytest.raises(UnavailableError):
        broker_enforcement.enforce(now())
    mark = tmp_path / "told"
    told_by(lab, f'["touch", "{mark}"]')
    assert broker_enforcement.enforce(now())
    assert not mark.exists()
    monkeypatch.setattr(enforcement.time, "monotonic", lambda real=enforcement.time.monotonic: real() + enforcement.BROKER_RETRY_S)
    assert not broker_enforcement.enforce(now())
    assert mark.exists()


def test_whoever_cannot_be_thrown_out_now_waits(lab):
    """The broker does not answer: it stays on the list, and a broker that starts later knows the device as revoked."""
    lab.token("pi-1")
    lab.run("revoke", "pi-1")
    assert certificates.pending_disconnects(lab.registry) == ["pi-1"]
    assert '"pi-1"' in lab.folder.broker_access.read_text()
