"""What the tests of jobs share: a store of contents."""

import pytest

from edgemeter.provisioning.content.store import ContentStore


@pytest.fixture
def store(tmp_path):
    """Return an empty store."""
    return ContentStore(tmp_path / "content")
