"""Facts about traces of requests: a server gets them at their times and in their lengths, by its own log."""

import hashlib
import json
import time

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import generating
from edgemeter.agent.engine.prompts.trace import read_trace
from edgemeter.agent.session import session
from tests.fixtures.paced_server import paced_server
from tests.fixtures.run_jobs import one_case, run_job

# ms after the first, and tokens of prompt and answer; twelve, as a median needs eleven.
REQUESTS = [(1000 + 30 * number + 7 * (number % 3), 5 + number, 2 + number % 4) for number in range(12)]


def timed_of(server, run):
    """Return the log of the timed requests."""
    end_ns = run.timed.end_ns
    return [entry for entry in server.requests() if run.timed.start_ns <= entry["came_ns"] <= end_ns]


@pytest.fixture
def trace(tmp_path):
    """Write a trace as Mooncake's are, with a request that failed."""
    path = tmp_path / "t.jsonl"
    entries = [{"timestamp": at, "input_length": length, "output_length": tokens, "hash_ids": [1]} for at, length, tokens in REQUESTS]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in [*entries, {"timestamp": 5, "input_length": 3, "output_length": 0}]))
    return path


def test_requests_come_when_and_as_long_as_the_trace_states(trace, tmp_path):
    """Gaps, prompts and answers by the server's log; latency counts from the stated time; the record names the file."""
    with paced_server(tmp_path, places=12, prefill_ms=3.0, step_ms=2.0) as server:
        case = msgspec.structs.replace(one_case(server.file, mode="rapid", trace=str(trace)), warm_up_seconds=0.0)
        now = time.monotonic_ns()
        run = generating.measure_generation(run_job(case, spawned_ns=now), now, lambda _: None)
        # Requests that come at once may overtake each other; each prompt is longer than the one before.
        log = sorted(timed_of(server, run), key=lambda entry: len(entry["prompt"].split()))
    raw = {series.name: samples.unpack(series) for series in run.samples}
    offsets_ns = [(at - REQUESTS[0][0]) * 1_000_000 for at, _, _ in REQUESTS]
    assert (raw["arrival"] - raw["arrival"][0]).tolist() == offsets_ns
    # Never before their time; on a busy machine later.
    came_ns = np.array([entry["came_ns"] for entry in log]) - (run.timed.start_ns + raw["arrival"])
    assert came_ns.min() > 0
    assert [len(entry["token_ns"]) for entry in log] == [tokens for _, _, tokens in REQUESTS]
    # A synthetic text has its salt and number in the place of two words.
    assert [len(entry["prompt"].split()) for entry in log] == [length - 1 for _, length, _ in REQUESTS]
    # From the stated time: the way to the server, then its 3 ms, of which it waits all but 0.2.
    assert (raw["first_token"] >= came_ns + 2_700_000).all()
    generation = run.generation
    file = generation.trace
    assert (file.file, file.requests, file.left_out) == ("t.jsonl", 12, 1)
    assert file.sha256 == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert (generation.output_tokens, generation.ended_early, generation.lengths) == (5, 0, "4 to 15+5")
    assert (run.load.target_per_s, run.load.is_sustained, run.load.unserved) == (None, None, 0)


def test_a_traced_run_is_a_case_of_its_own_and_is_recomputed(trace, tmp_path):
    """The record of a session: figures from the raw samples are the stated ones; another trace is other work."""
    other = tmp_path / "other.jsonl"
    other.write_text(trace.read_text().replace('"input_length": 5,', '"input_length": 6,'))
    with paced_server(tmp_path, places=12, prefill_ms=1.0, step_ms=1.0) as server:
        cases = [one_case(server.file, mode="rapid", trace=str(path), repeats=1) for path in (trace, other)]
        cases = [msgspec.structs.replace(case, warm_up_seconds=0.1) for case in cases]
        records = list(session.measure(Suite("s", tuple(cases)), session.DeviceIdentity("bench", "lab"), {}, "none", lambda _: None))
    for record in records:
        assert isinstance(record, RunRecord), record
        assert record.scenario == "trace"
        assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []
    assert records[0].case != records[1].case
    assert cases[0].label == "paced.server server 1 thread requests of t.jsonl"


def test_traces_of_other_forms_are_read(tmp_path):
    """Azure's columns with dates; times count from the first request, whatever the order."""
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:50.9951690,8,5\n2023-11-16 18:15:46.6805900,374,44\n")
    trace = read_trace(path)
    assert [(request.offset_ns, request.input_tokens, request.output_tokens) for request in trace.requests] == [
        (0, 374, 44),
        (4_314_579_000, 8, 5),
    ]
    assert (trace.longest_tokens, trace.longest_output_tokens) == (418, 44)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"timestamp": 1}\n', "line 1 is no request"),
        ('{"timestamp": 1, "input_length": -1, "output_length": 2}\n', "line 1 is no request"),
        ("a,b\n1,2\n", "line 2 is no request"),
        ('{"timestamp": 1, "input_length": 0, "output_length": 2}\n', "no request with tokens"),
        ('{"timestamp": \n', "line 1"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path, text, reason):
    """One line names the file and where."""
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_trace(path)
