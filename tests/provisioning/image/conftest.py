from pathlib import Path

import pytest

from tests.fixtures.command import edgemeter
from tests.provisioning.image import cards


@pytest.fixture(scope="session")
def fleet(tmp_path_factory) -> Path:
    """Return a fleet's folder with its keys, `release-0.0.1.tar` and `pi5-01.join.toml`."""
    folder = tmp_path_factory.mktemp("fleet") / "lab"
    for words in (["init", "--broker", "broker.example"], ["token", "pi5-01", "--output", folder]):
        process = edgemeter("fleet", "--folder", folder, *words)
        assert process.returncode == 0, process.stderr
    cards.release(folder, folder / "release.key")
    return folder
