import contextlib

import pytest

from edgemeter.provisioning.apply import bring
from tests.fixtures.device_release import QUICK
from tests.provisioning.apply.bench import Bench


@pytest.fixture
def quick_installer(tmp_path, monkeypatch):
    """Replace the real installer with one that does its work in a moment.

    It is for tests of everything but the installation.
    """
    (tmp_path / "install.py").write_text(QUICK)
    monkeypatch.setattr(bring, "INSTALLER", tmp_path / "install.py")


@pytest.fixture
def bench(tmp_path, quick_installer):  # noqa: ARG001 - replaces the installer
    """Return a bench; its sshd ends with the test."""
    with contextlib.closing(Bench(tmp_path)) as bench:
        yield bench
