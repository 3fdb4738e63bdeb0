from types import SimpleNamespace

import pytest

from tests.fixtures import small_release


@pytest.fixture(scope="session")
def releases(tmp_path_factory):
    """Return `key`, `public`, and releases of versions 1.0, 1.1 and 2.0."""
    folder = tmp_path_factory.mktemp("releases")
    key, public = small_release.keys(folder)
    by_name = {
        f"v{version.replace('.', '')}": small_release.make(folder, version, key, folder / "packed")
        for version in ("1.0", "1.1", "2.0")
    }
    return SimpleNamespace(key=key, public=public, folder=folder, **by_name)


@pytest.fixture
def pip_finds(monkeypatch):
    """Return a function that lets pip find wheels in these folders and nowhere else."""

    def find(*folders):
        for name in ("EXTRA_INDEX_URL", "INDEX_URL"):
            monkeypatch.delenv(f"PIP_{name}", raising=False)
        for name, value in {
            "CONFIG_FILE": "/dev/null",
            "NO_INDEX": "1",
            "FIND_LINKS": " ".join(map(str, folders)),
        }.items():
            monkeypatch.setenv(f"PIP_{name}", value)

    return find
