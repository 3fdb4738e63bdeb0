"""Facts about the roof: what was disturbed is refused."""

from edgemeter.agent.machine import roof


def test_measurements_that_differ_by_more_than_15_percent_are_no_roof():
    """Other work disturbed one."""
    assert roof.unsteady([85.0, 100.0], "GB/s") == []
    assert "84 and 100 GB/s" in roof.unsteady([84.0, 100.0], "GB/s")[0]
