"""The service: which topics go to which handler."""

import pytest

from edgemeter.provisioning.serve.service import topic_matches


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/pi/job", True),
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/pi/state", False),
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/job", False),
        ("edgemeter/enrol/#", "edgemeter/enrol/abc/request", True),
        ("edgemeter/enrol/#", "edgemeter/v1/abc/request", False),
    ],
)
def test_a_desk_hears_what_fits_its_subscription(pattern, topic, expected):
    """As the broker reads wildcards."""
    assert topic_matches(pattern, topic) is expected
