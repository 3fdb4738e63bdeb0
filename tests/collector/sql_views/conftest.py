"""A ledger in PostgreSQL for the tests of its views, and who reads them."""

import pytest

from tests.fixtures.ledgers import initialised
from tests.fixtures.sql_ledger import ViewsReader


@pytest.fixture
def lab(postgresql):
    """Return an empty ledger with its views."""
    return initialised(postgresql)


@pytest.fixture
def reader(postgresql_server, lab):
    """Return a user who may only read."""
    user = ViewsReader(postgresql_server, lab)
    yield user
    user.close()
