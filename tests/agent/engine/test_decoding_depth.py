"""Facts about decoding at a depth: the context is filled once, and a query has nothing but steps of decoding."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent import generators
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract import samples
from edgemeter.agent.engine import generating
from edgemeter.agent.engine.decoding_depth import FilledGenerator, FirstSteps
from edgemeter.agent.generators import Limits
from edgemeter.agent.runtimes import Options
from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.generating_run import measured, recording
from tests.fixtures.language_server import events, llama_cpp_server, llama_server
from tests.fixtures.record_factory import make_environment
from tests.fixtures.run_jobs import one_case, run_job

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "generators" / "llama.gguf"
STEP_MS, PER_TOKEN_MS = 2.0, 0.05


def run_at(folder, depth, **recorded):
    """Return the run of a replay of 2 ms a step, and 0.05 ms more for each token of the depth."""
    path = recording(folder, queries=[{"first_ms": 900.0, "steps_ms": [STEP_MS]}], step_ms_per_token=PER_TOKEN_MS, **recorded)
    case = msgspec.structs.replace(one_case(model=str(path), mode="rapid", depth_tokens=depth, output_tokens=5), warm_up_seconds=0.0)
    return generating.measure_generation(run_job(case), 0, lambda _: None)


def test_a_query_at_a_depth_is_decoding_alone(tmp_path):
    """A prefill of 900 ms is in no figure; a step takes what the depth makes it take, the first one too."""
    for depth in (0, 40):
        run = run_at(tmp_path, depth)
        generation = run.generation
        assert (generation.depth_tokens, generation.prompt_tokens, generation.cached_tokens) == (depth, 0, depth)
        # A busy machine may be late, never early; the prefill would be 180 ms a token.
        assert STEP_MS + PER_TOKEN_MS * depth <= generation.tpot.min_ms < 100
        assert generation.decode_tokens_per_s <= 1e3 / (STEP_MS + PER_TOKEN_MS * depth)
        assert generation.ttft is generation.prefill_tokens_per_s is generation.own_prefill_tokens_per_s is None
        assert "filled before" in generation.ttft_reason
        assert run.dataset.name == f"synthetic 5 tokens at depth {depth}"
        (latency,) = (samples.unpack(entry) for entry in run.samples if entry.name == "latency")
        assert generation.tpot.p50_ms == pytest.approx(float(np.median(latency)) / 5e6)


def test_the_context_is_filled_once_and_each_query_has_its_own_first_step(tmp_path):
    """Cold, warm-up, timed and repeated queries all begin behind the one filling."""
    generator = generators.create("replay")
    loaded = generator.load(recording(tmp_path), Options(), 20)
    filled: list[list[int]] = []
    fill = generator.fill
    generator.fill = lambda tokens: (filled.append(list(tokens)), fill(tokens))
    steps = FirstSteps(loaded, 12, seed=3)
    at_depth = FilledGenerator(generator, loaded, steps)
    firsts = [steps.of(number) for number in range(5)]
    for first in firsts:
        assert at_depth.bind(first, Limits(4))(lambda _: None).cached_tokens == 12
    assert [len(tokens) for tokens in filled] == [12]
    assert len({first[0] for first in firsts}) == 5
    assert {len(first) for first in firsts} == {1}


def test_who_cannot_keep_a_context_is_named_with_what_to_do(tmp_path):
    """A server that is not llama-server pays for the prompt in each query."""
    server = llama_server()
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    server.routes["/v1/completions"] = lambda _: events({"choices": [{"text": "a b c d", "finish_reason": "length"}], "usage": usage})
    path = tmp_path / "m.server"
    path.write_text(f'url = "{server.url}"\nserver = "openai"\nmodel = "tiny"\n')
    case = one_case(model=str(path), mode="rapid", depth_tokens=8, output_tokens=4)
    with pytest.raises(ConfigError, match="--prompt-tokens instead of --depth"):
        generating.measure_generation(run_job(case), 0, lambda _: None)
    server.close()


def test_a_servers_depth_is_its_prompt_cache_by_its_own_count(tmp_path):
    """llama-server processes one token a query; TPOT counts from the first, before which lies the network."""
    pytest.importorskip("xllamacpp")
    with llama_cpp_server(TINY, tmp_path) as path:
        case = msgspec.structs.replace(one_case(model=str(path), mode="rapid", depth_tokens=100, output_tokens=6), warm_up_seconds=0.0)
        generation = generating.measure_generation(run_job(case), 0, lambda _: None).generation
    assert (generation.cached_tokens, generation.prompt_tokens, generation.ttft) == (100, 0, None)
    assert not generation.decodes_from_start
    assert generation.own_decode_tokens_per_s


@pytest.mark.parametrize(("share", "is_violated"), [(1.0, False), (0.25, True)])
def test_a_server_that_drops_its_context_is_found_by_its_fewest_cached_tokens(tmp_path, share, is_violated):
    """Models with a sliding window or a state process it again, some queries or all: that prefill would be a part of each latency."""
    server = llama_server()
    answer, contents = server.routes["/completion"], []

    def complete(content):
        reply = answer(content)
        contents.append(content)
        final = json.loads(reply.lines[-2].removeprefix(b"data: "))
        if len(contents) % 3 == 0:
            final["timings"]["cache_n"] = int(final["timings"]["cache_n"] * share)
        return replace(reply, lines=[*reply.lines[:-2], b"data: " + json.dumps(final).encode(), b""])

    server.routes["/completion"] = complete
    path = tmp_path / "m.server"
    path.write_text(f'url = "{server.url}"\n')
    case = msgspec.structs.replace(one_case(model=str(path), mode="rapid", depth_tokens=40, output_tokens=4), warm_up_seconds=0.0)
    run = generating.measure_generation(run_job(case), 0, lambda _: None)
    server.close()
    assert run.generation.cached_tokens == 40 * share
    reasons = [reason for reason in verdict.judge(run, [], make_environment()).reasons if reason.startswith("depth-not-kept")]
    assert bool(reasons) == is_violated
    assert not is_violated or "10 of the 40 tokens" in reasons[0]


@pytest.mark.slow
def test_a_record_at_a_depth_is_recomputed_from_its_samples(tmp_path):
    """Also at depth 0, where there is no prefill rate either."""
    for depth in (0, 16):
        record = measured(tmp_path, depth_tokens=depth, prompt_tokens=None)
        assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []
        assert not any("cache" in reason for reason in (*record.verdict.reasons, *record.verdict.notes))
