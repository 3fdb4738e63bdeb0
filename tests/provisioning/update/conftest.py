"""A board on which a release is installed: once a module, then copied."""

import pytest

from tests.fixtures.update_board import Board, copied


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Return a folder with version 1.0 installed, to be copied: an installation takes seconds."""
    board = Board(tmp_path_factory.mktemp("first"))
    board.install(board.release("1.0"))
    return board


@pytest.fixture
def board(first, tmp_path):
    """Return a board on which version 1.0 runs, under supervision."""
    board = copied(first, tmp_path)
    yield board
    board.close()
