"""Fixtures of the bundle: a key, and real small bundles of three versions for this machine."""

from types import SimpleNamespace

import pytest

from tests.provisioning.bundle import small_bundle


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Return `key`, `public`, and the folders of bundles of versions 1.0, 1.1 and 2.0."""
    folder = tmp_path_factory.mktemp("bundles")
    key, public = small_bundle.keys(folder)
    made = {f"v{version.replace('.', '')}": small_bundle.make(folder, version, key, folder / "packed") for version in ("1.0", "1.1", "2.0")}
    return SimpleNamespace(key=key, public=public, folder=folder, **made)
