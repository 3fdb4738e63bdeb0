"""Sessions on a served model record what its server counted and who used the machine."""

from itertools import count

import pytest

from edgemeter.agent.bundle.recompute import recompute
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.session import session
from tests.fixtures.oip_server import ServedModelScript, oip_server, served_file


@pytest.mark.services
def test_users_of_a_served_model_are_a_record_that_can_be_recomputed(tmp_path):
    """The record has failures, waits, the ramp-up and the tail."""
    numbers = count()

    def refuse_some(_, path):
        number = next(numbers) if path.endswith("/infer") else 0
        return (
            (503, {"Retry-After": "0.02"}, b'{"error": "planted"}')
            if number >= 60 and number % 20 == 0
            else None
        )

    with oip_server(ServedModelScript(compute_s=0.005, instead=refuse_some)) as url:
        case = Settings(
            model=str(served_file(tmp_path, url)), mode="rapid", idle_seconds=0.0, repeats=1,
            concurrency=3, seconds=0.6,
        )  # fmt: skip
        suite = expand(SuiteFile(name="s", case=[case]), tmp_path)
        (record,) = session.measure(
            suite, session.DeviceIdentity("bench", "lab"), {}, "no sensor", lambda _: None
        )
    assert isinstance(record, RunRecord), record
    assert record.load.failures == {"http 503": record.load.failed_queries}
    assert "failed-queries" in record.verdict.rules
    assert any(series.name == "pause_start" for series in record.samples)
    assert recompute(record)[1] == ()
