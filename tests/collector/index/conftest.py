"""What the tests of the index share: the path of a ledger."""

import pytest


@pytest.fixture
def path(tmp_path):
    """Return the path of a ledger, which is not there yet."""
    return tmp_path / "ledger.sqlite"
