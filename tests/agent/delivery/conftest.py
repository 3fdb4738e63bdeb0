"""The outbox that the tests of the delivery share."""

import pytest

from edgemeter.agent.delivery.outbox import Outbox


@pytest.fixture
def outbox(tmp_path):
    """Return an empty outbox, in a folder that it makes."""
    with Outbox(tmp_path / "deep" / "outbox.sqlite") as new_outbox:
        yield new_outbox
