"""The board that tests of its settings share."""

import pytest

from tests.fixtures.settable_board import SettableBoard


@pytest.fixture
def board(tmp_path, monkeypatch):
    jetson = SettableBoard(tmp_path)
    monkeypatch.setenv("PATH", jetson.environment["PATH"])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    jetson.without_processes(monkeypatch)
    return jetson
