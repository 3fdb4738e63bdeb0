"""Facts about sessions on a served model: what its server can hold, what it counted, its energy, and what is left when it dies."""

import itertools
import json
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.load_sweep import bracket, sweeps
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.machine.load import LOAD_RATIO
from edgemeter.agent.power.replay import ReplaySensor
from edgemeter.agent.session import session
from tests.fixtures.oip_server import ServedModelScript, oip_server
from tests.fixtures.paced_model_server import paced_model_server


@contextmanager
def busy_loops(count):
    """Run so many processes that use a core each."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def outcomes_of(server, folder, **settings):
    """Return what a session of these settings gives, record or error, in the order of its runs."""
    return outcomes_at(server.file, folder, **settings)


def outcomes_at(file, folder, sensors=None, **settings):
    """Return what a session on the server of a file gives."""
    case = Settings(**{"model": str(file), "mode": "rapid", "accuracy": "never", "idle_seconds": 0.0, **settings})
    suite = expand(SuiteFile(name="s", case=[case]), folder)
    return list(session.measure(suite, session.DeviceIdentity("bench", "lab"), sensors or {}, "no sensor", lambda _: None))


def scripted(folder, script, sensors=None, **settings):
    """Return the record of one run on a server that follows a script."""
    file = folder / "double.server"
    with oip_server(script) as url:
        file.write_text(f'url = "{url}"\nprotocol = "oip"\n')
        (record,) = outcomes_at(file, folder, sensors, repeats=1, **settings)
    assert isinstance(record, RunRecord), record
    return record


@pytest.mark.services
@pytest.mark.alone
def test_a_frame_without_a_reply_of_the_server_is_missed_and_ends_no_run(tmp_path):
    """Every tenth answer is an error, in the warm-up too: no run is lost for one of them, and the failures are counted."""
    requests = itertools.count(1)

    def instead(_method, path):
        return (503, {}, b"busy") if path.endswith("/infer") and next(requests) % 10 == 0 else None

    script = ServedModelScript(instead=instead)
    run = scripted(tmp_path, script, queries=64, seconds=2.0, scenario="steady", rate_per_s=50.0)
    assert 9 <= run.served.failed_queries <= 11
    assert run.steady.frames == 100
    assert run.steady.dropped >= run.served.failed_queries
    assert run.latency.count == 100 - run.steady.dropped
    assert not [finding for finding in recompute(run) if isinstance(finding, FigureDifference)]


@pytest.mark.services
@pytest.mark.alone
def test_a_server_on_this_machine_has_the_energy_of_its_queries(tmp_path):
    """Of 3 W the joules of a query are those of the time that it takes, by the sensor of this machine."""
    recording = tmp_path / "power.json"
    recording.write_text(json.dumps({"t_s": [0, 0.01, 60], "power_w": [3, 3, 3], "scope": "board-input", "period_ms": 20.0}))
    sensors = {"replay": ReplaySensor(str(recording))}
    record = scripted(tmp_path, ServedModelScript(compute_s=0.005), sensors, queries=64, seconds=11.0)
    assert record.energy is not None, record.energy_reason
    assert record.energy.gross_mj == pytest.approx(3.0 * 1e3 / record.throughput_per_s, rel=0.02)


@pytest.mark.services
@pytest.mark.alone
def test_a_search_finds_the_planted_capacity(tmp_path):
    """Each step is a record, and the highest rate that is held lies below what two places can, not far."""
    with paced_model_server(tmp_path, places=2, service_ms=20.0) as server:
        records = outcomes_of(server, tmp_path, scenario="poisson", rate_per_s="auto", slo="latency=250ms")
        capacity_per_s = 2e9 / statistics.mean(entry["done_ns"] - entry["began_ns"] for entry in server.requests())
    assert all(isinstance(record, RunRecord) for record in records), records
    (sweep,) = sweeps(records)
    holding, failing = bracket(sweep.points)
    # On a busy machine the server takes longer, by its own log.
    assert 0.4 * capacity_per_s < holding.target_per_s < 120.0
    assert holding.target_per_s < failing.target_per_s < 150.0


@pytest.mark.services
def test_users_of_a_served_model_are_a_record_that_can_be_recomputed(tmp_path):
    """With failures, waits, ramp-up and tail; and the server that dies then leaves it, with one line for the next."""
    planted = {"failing_ratio": 0.05, "status": 503, "retry_after_s": 0.02, "first_fault": 60}
    with paced_model_server(tmp_path, places=2, service_ms=5.0, **planted) as server:
        (record,) = outcomes_of(server, tmp_path, concurrency=3, repeats=1, slo="latency=50ms", queries=300)
    assert isinstance(record, RunRecord), record
    assert record.served.failures == {"http 503": record.served.failed_queries}
    assert "failed-answers" in record.verdict.rules
    assert record.load.paused_ms > 0
    assert not [finding for finding in recompute(record) if isinstance(finding, FigureDifference)]


@pytest.mark.services
def test_a_build_beside_a_server_of_this_machine_is_found(tmp_path):
    """The server's own work is not that of others; two busy loops beside it are, and are named."""
    with paced_model_server(tmp_path, service_ms=5.0, spins=True) as server:
        (alone,) = outcomes_of(server, tmp_path, repeats=1, seconds=2.0)
        with busy_loops(2):
            (disturbed,) = outcomes_of(server, tmp_path, repeats=1, seconds=2.0)
    assert isinstance(alone, RunRecord) and isinstance(disturbed, RunRecord), (alone, disturbed)  # noqa: PT018
    first, second = (next(state for state in record.conditions if state.when == "during") for record in (alone, disturbed))
    # A core, or what others leave of it.
    assert min(first.served_load_ratio, second.served_load_ratio) > 0.0
    assert second.other_load_ratio > LOAD_RATIO
    assert "busy-machine" in disturbed.verdict.rules
