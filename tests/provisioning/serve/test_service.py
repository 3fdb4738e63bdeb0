"""The service: which topics go to which handler."""

from edgemeter.provisioning.serve.handler import covers


def test_a_handler_receives_what_fits_its_subscription():
    """A subscription's wildcards stand for what they stand for at the broker."""
    for pattern, topic, expected in (
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/pi/job", True),
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/pi/state", False),
        ("edgemeter/v1/+/+/job", "edgemeter/v1/lab/job", False),
        ("edgemeter/enrol/#", "edgemeter/enrol/abc/request", True),
        ("edgemeter/enrol/#", "edgemeter/v1/abc/request", False),
    ):
        assert covers(pattern, topic) is expected, f"{pattern!r}, {topic!r}"
