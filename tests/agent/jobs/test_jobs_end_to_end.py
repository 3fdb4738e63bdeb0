"""Facts about orders carried out by an agent that stays, over a real broker."""

import pytest

from edgemeter.agent.jobs.contract import Measure
from tests.agent.jobs.fleet_server import LONG_S

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

REPLAY = b"""{"format": "edgemeter-replay", "schema": 1, "latencies_ms": [2.0, 2.5],
 "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}], "outputs": [{"name": "y", "shape": [1, 3], "dtype": "float32"}]}"""
SUITE = b"""name = "nightly"
[[case]]
model = "m.replay.json"
mode = "rapid"
repeats = 2
queries = 20
seconds = 0
idle_seconds = 0
"""


def measure(server, suite=SUITE, models=(("m.replay.json", REPLAY),), **more):
    """Return the work of measuring a suite whose files the server holds."""
    held = tuple(server.hold(data, name) for name, data in models)
    return Measure(suite=server.hold(suite, "nightly.toml"), models=held, **more)


def test_a_suite_is_fetched_measured_and_reported(server, agent):
    """Accepted, running, done, with the runs' ids; the records are in the outbox."""
    agent.start()
    server.order(measure(server))
    final = server.final(timeout_s=LONG_S)
    print(final, agent.log.read_text())
    assert final.state == "done"
    assert len(final.runs) == 2
    assert server.progress
