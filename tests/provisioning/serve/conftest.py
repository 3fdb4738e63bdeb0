"""What the tests of the service share: a fleet on loopback."""

from contextlib import ExitStack

import pytest

from tests.provisioning.identity.lab import Lab


@pytest.fixture
def lab(tmp_path):
    """Return a fleet whose broker does not run yet."""
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)
