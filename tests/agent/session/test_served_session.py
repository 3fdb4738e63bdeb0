"""Facts about sessions on a served model: what its server counted, and who else used the machine."""

import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.session import session
from tests.fixtures.paced_model_server import paced_model_server


def record_of(server, folder, **settings):
    """Return the record of one run of a session of these settings."""
    case = Settings(**{"model": str(server.file), "mode": "rapid", "accuracy": "never", "idle_seconds": 0.0, "repeats": 1, **settings})
    suite = expand(SuiteFile(name="s", case=[case]), folder)
    (record,) = session.measure(suite, session.DeviceIdentity("bench", "lab"), {}, "no sensor", lambda _: None)
    assert isinstance(record, RunRecord), record
    return record


@pytest.mark.services
def test_users_of_a_served_model_are_a_record_that_can_be_recomputed(tmp_path):
    """With failures, waits, ramp-up and tail."""
    planted = {"failing_ratio": 0.05, "status": 503, "retry_after_s": 0.02, "first_fault": 60}
    with paced_model_server(tmp_path, places=2, service_ms=5.0, **planted) as server:
        record = record_of(server, tmp_path, concurrency=3, slo="latency=50ms", queries=300)
    assert record.served.failures == {"http 503": record.served.failed_queries}
    assert "failed-answers" in record.verdict.rules
    assert record.load.paused_ms > 0
    assert not [finding for finding in recompute(record) if isinstance(finding, FigureDifference)]
