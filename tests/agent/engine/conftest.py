"""The time that the tests of the engine share: it passes only where something waits."""

import pytest

from tests.fixtures.played_time import play_time


@pytest.fixture
def played(monkeypatch):
    return play_time(monkeypatch)
