"""Facts about `edgemeter.agent.jobs.measuring`: which figures of a canary run are compared with the board's past."""

import pytest

from edgemeter.agent.contract.energy_provenance import ESTIMATE_SENSOR
from edgemeter.agent.jobs.measuring import figures
from tests.fixtures.record_factory import make_energy, make_record


@pytest.mark.parametrize(("changes", "provenance", "decides"), [
    ({}, "measured", True),
    ({"sensor": ESTIMATE_SENSOR, "gross_u_mj": None}, "estimated", False),
])  # fmt: skip
def test_an_energy_that_nobody_measured_decides_no_canary(changes, provenance, decides):
    """Neither one from a stated power nor one that a model made of a narrower scope; the other figures stay."""
    record = make_record(energy=make_energy(**changes), provenance={"latency": "measured", "energy": provenance})
    reported = figures(record)
    assert ("energy_gross_mj" in reported) == decides, reported
    assert "latency_p50_ms" in reported
