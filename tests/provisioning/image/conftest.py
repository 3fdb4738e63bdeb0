"""Fixtures of images: keys, a small release, a join file."""

from pathlib import Path

import pytest

from tests.fixtures import small_release
from tests.provisioning.image import cards


@pytest.fixture(scope="session")
def release_folder(tmp_path_factory) -> Path:
    """Return a folder with `release.key`, `release.pub`, `ca.crt` and `release-0.0.1`."""
    folder = tmp_path_factory.mktemp("release")
    key, _ = small_release.keys(folder)
    cards.run("openssl", "req", "-x509", "-key", key, "-subj", "/CN=authority", "-days", "30", "-out", folder / "ca.crt")
    cards.release(folder, key)
    return folder


@pytest.fixture(scope="session")
def join(release_folder) -> Path:
    """Return a join file."""
    lines = ['fleet = "lab"', 'device = "pi5-01"', 'broker = "mqtts://broker.example:8883"', 'enrol = "mqtts://broker.example:8884"']
    path = release_folder / "pi5-01.toml"
    path.write_text("\n".join([*lines, f'token = "{cards.TOKEN}"', f"ca = '''\n{(release_folder / 'ca.crt').read_text()}'''", ""]))
    return path


@pytest.fixture(scope="session")
def card_options(release_folder, join) -> list[str]:
    """Return the options that every card needs."""
    return ["--release", str(release_folder / "release-0.0.1"), "--join", str(join), "--public-key", str(release_folder / "release.pub")]
