"""Facts about `edgemeter.agent.power.values`."""

import pytest

from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.power import values
from tests.fixtures.rows import table_row


def test_a_power_within_what_can_be_is_itself():
    """A power up to the maximum is returned as it was read, whatever its sign."""
    for found_w in [0.0, 5.5, -5.5, 10.0]:
        assert values.plausible_power_w(found_w, 10.0, "rail 'A'") == found_w, f"{found_w!r}"


def test_a_power_beyond_it_is_a_reading_that_failed():
    """With the name of what shows it."""
    for found_w in [10.1, -10.1]:
        with table_row(found_w), pytest.raises(TransientError, match=r"rail 'A' shows -?10\.1 W"):
            values.plausible_power_w(found_w, 10.0, "rail 'A'")
