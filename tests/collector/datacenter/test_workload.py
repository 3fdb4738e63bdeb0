"""Facts about language models at the edge and in the datacenter: joules by the token, of equal requests only."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.record_generation import TokenLengths
from edgemeter.collector.cli.datacenter import datacenter
from edgemeter.collector.datacenter.workload import TokenWorkload, differences
from tests.fixtures.comparison_factory import OTHER_DATA, document, make_reference, make_run
from tests.fixtures.generating_run import measured
from tests.fixtures.record_factory import SHA_DATA, make_energy, make_generation
from tests.fixtures.rows import table_row

ROOT = Path(__file__).parents[3]
NOISE = (0.99, 1.0, 1.01)
TOKENS = "tokens = { prompt_tokens = 512, output_tokens = 11, precision = 'q4_0', concurrency = 32 }"
STATED = f"""[stated.datacenter]
idle_w = 300
max_w = 900
rate_per_s = 20
scope = "wall-ac"
source = "our rack"
year = 2026
{TOKENS}
"""


def edge_runs(precision="q4_0", data=SHA_DATA, **changes):
    """Return three runs of a board that takes 22,000 mJ for a request of 11 output tokens, 11,000 net, and answers 0.25 a second."""
    generation = make_generation(**changes)
    return [
        make_run(
            model="notes", task="generation", precision=precision, ap=None, data=data, generation=generation,
            throughput_per_s=0.25 / factor,
            energy=make_energy(
                gross_mj=22_000 * factor, gross_u_mj=220.0, net_mj=11_000 * factor, net_u_mj=330.0, mean_power_w=5.5, idle_before_w=2.75,
                idle_after_w=2.75,
            ),
        )
        for factor in NOISE
    ]  # fmt: skip


def server_runs(precision="q4_0", **changes):
    """Return three runs of a server that idles at 300 W, draws 400 W, and answers 4 requests a second over HTTP."""
    generation = make_generation(is_local=False, counts="usage", **changes)
    return [
        make_reference(
            model="notes", task="generation", precision=precision, ap=None, generation=generation, throughput_per_s=4.0 / factor,
            data=OTHER_DATA,
            energy=make_energy(
                sensor="shelly", scope="wall-ac", excludes=(), gross_mj=100_000 * factor, net_mj=25_000.0, mean_power_w=400.0,
                idle_before_w=300.0, idle_after_w=300.0,
            ),
        )
        for factor in NOISE
    ]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the command on runs; `constants` replace those that ship."""

    def command(runs, *arguments, constants=""):
        (tmp_path / "runs.json").write_bytes(document(*runs))
        (tmp_path / "own.toml").write_text(constants)
        options = ["--ledger", str(tmp_path / "runs.json"), "--constants", str(tmp_path / "own.toml"), *arguments]
        return CliRunner().invoke(datacenter, options, catch_exceptions=False).stdout

    return command


def test_joules_per_output_token_are_those_of_the_whole_request_by_its_output_tokens(run):
    """By hand: 22,000 mJ by 11 tokens; the server at 80% and a PUE of 1.1 to 1.6; the uncertainty of the meter is in the band."""
    printed = json.loads(run([*edge_runs(), *server_runs()], "--json"))
    edge = printed["edge_request_gross_mj_per_output_token"]
    assert edge["value"] == pytest.approx(2000.0)
    assert edge["high"] == pytest.approx(printed["edge_gross_mj"]["high"] / 11)
    assert edge["high"] > 2000 + 220 / 11
    assert printed["edge_request_net_mj_per_output_token"]["value"] == pytest.approx(1000.0)
    assert printed["per_output_token_definition"].startswith("energy of a whole request, prefill included, divided by its output tokens")
    (part,) = printed["against"]
    at_80 = part["gross_by_utilisation"][-1]
    it_mj = (300 + 100 * 0.8) / (0.8 * 4) * 1000
    assert at_80["request_gross_mj_per_output_token"]["low"] < 1.1 * it_mj / 11 < 1.6 * it_mj / 11
    assert at_80["request_gross_mj_per_output_token"]["high"] > 1.6 * it_mj / 11
    cell = part["gross"][0]
    assert cell["request_gross_with_network_mj_per_output_token"]["value"] == pytest.approx(cell["other"]["value"] / 11)
    assert part["net"][0]["request_net_with_network_mj_per_output_token"]["value"] == pytest.approx(part["net"][0]["other"]["value"] / 11)


def test_the_terminal_names_tokens_and_requests(run):
    """What a request is, the energy by its output tokens, and what batching would change."""
    text = " ".join(run([*edge_runs(), *server_runs()]).split())
    assert "a request is 512 prompt + 11 output tokens, q4_0" in text
    assert "by its output tokens, prefill included: gross 2,000 mJ" in text
    assert (
        "Against single stream notes q4_0 on onnx, server-1 with 1 request at once: the edge takes less energy at 5% to 80% utilisation"
        in text
    )
    assert "a server that batches requests takes less energy for each" in text
    assert "answered over HTTP, which its energy contains" in text
    assert "2,092 bytes a request" in text
    assert "per inference" not in text


def test_the_bytes_of_a_request_are_those_of_its_text(run):
    """Four a token, and no photograph; an option replaces them."""
    runs = [*edge_runs(), *server_runs()]
    assert json.loads(run(runs, "--json"))["request_bytes"] == 4 * (512 + 11)
    assert json.loads(run(runs, "--json", "--bytes", "900"))["request_bytes"] == 900


def test_neither_lengths_nor_quantisations_are_mixed_to_find_the_lowest_energy(run):
    """Several need a choice, which the options make."""
    short = edge_runs(data=OTHER_DATA, prompt_tokens=16, output_tokens=8)
    with pytest.raises(ConfigError, match=r"several lengths, choose one with --prompt-tokens and --output-tokens: 16\+8, 512\+11"):
        run([*edge_runs(), *short, *server_runs()])
    with pytest.raises(ConfigError, match="several quantisations, choose one with --precision: q4_0, q8_0"):
        run([*edge_runs(), *edge_runs("q8_0"), *server_runs()])
    printed = json.loads(run([*edge_runs(), *short, *server_runs()], "--json", "--prompt-tokens", "512"))
    assert printed["edge"]["tokens"]["prompt_tokens"] == 512
    with pytest.raises(ConfigError, match=r"the numbers of tokens; available: .*; lengths: 16\+8, 512\+11"):
        run([*edge_runs(), *short, *server_runs()], "--prompt-tokens", "99")


def test_a_server_that_did_other_work_is_left_out_with_the_reason(run):
    """The reason names the condition that differs, with both values."""
    for changes, words in (
        ({"prompt_tokens": 128}, "prompt tokens 512, there 128"),
        ({"output_tokens": 128}, "output tokens 11, there 128"),
        ({"precision": "q8_0"}, "quantisation q4_0, there q8_0"),
        ({"sampling": "top-p 0.9"}, "sampling greedy, there top-p 0.9"),
        ({"speculative": "draft"}, "speculation none, there draft"),
        ({"ended_early": 3}, "9 requests ended early"),
    ):
        with table_row(changes), pytest.raises(UnavailableError, match=words):
            run([*edge_runs(), *server_runs(**changes)])


def test_an_unknown_quantisation_equals_nothing(run):
    """Two files of unknown bits may be anything."""
    with pytest.raises(UnavailableError, match="quantisation unknown, there unknown"):
        run([*edge_runs("unknown"), *server_runs("unknown")])


def test_a_batching_server_is_stated_with_its_requests(run):
    """Its concurrency stands in the document; without its tokens, or with others, it is refused."""
    printed = json.loads(run(edge_runs(), "--json", constants=STATED))
    server = printed["against"][0]["server"]
    assert (server["tokens"]["concurrency"], server["tokens"]["counts"], server["provenance"]) == (32, "stated", "stated")
    assert printed["against"][0]["gross_by_utilisation"][-1]["request_gross_mj_per_output_token"]["low"] == pytest.approx(
        1.1 * (300 + 600 * 0.8) / (0.8 * 20) * 1000 / 11
    )
    assert any("stated, not measured" in note for note in printed["notes"])
    with pytest.raises(ConfigError, match="has no tokens, and the other side is a language model"):
        run(edge_runs(), constants=STATED.replace(TOKENS, ""))
    with pytest.raises(ConfigError, match="do not do the same work: output tokens 11, there 128"):
        run(edge_runs(), constants=STATED.replace("output_tokens = 11", "output_tokens = 128"))
    with pytest.raises(ConfigError, match="has no tokens"):
        run([make_run(energy=make_energy())], constants=STATED)


def test_estimated_tokens_stay_an_estimate(run):
    """Tokens counted from chunks of text are marked as such."""
    printed = json.loads(run([*edge_runs(counts="estimated"), *server_runs()], "--json"))
    assert printed["edge"]["tokens"]["counts"] == "estimated"
    assert any("estimated from chunks of text: so is its energy per output token" in note for note in printed["notes"])


def test_a_model_that_generates_nothing_has_no_tokens(run):
    """The fields are null, and an option for tokens finds nothing."""
    runs = [make_run(energy=make_energy()), make_reference(energy=make_energy())]
    printed = json.loads(run(runs, "--json"))
    assert printed["edge_request_gross_mj_per_output_token"] is None
    assert printed["per_output_token_definition"] is None
    with pytest.raises(ConfigError, match="no device case matches"):
        run(runs, "--output-tokens", "8")


def test_records_of_real_runs_are_compared(run, tmp_path):
    """Two runs in processes of their own, 16 prompt and 8 output tokens, with an energy beside them."""
    record = measured(tmp_path, {"precision": "q8_0"})
    energy = make_energy(gross_mj=80.0, net_mj=40.0, mean_power_w=10.0, idle_before_w=5.0, idle_after_w=5.0)
    provenance = {**record.provenance, "energy": record.provenance["latency"]}
    edge = msgspec.structs.replace(record, energy=energy, energy_reason=None, provenance=provenance)
    server = msgspec.structs.replace(edge, id="00000000-0000-4000-8000-000000000001", device="rack", role="reference")
    printed = json.loads(run([edge, server], "--json"))
    assert printed["edge"]["tokens"]["output_tokens"] == 8
    assert printed["edge_request_gross_mj_per_output_token"]["value"] == pytest.approx(10.0)


def test_what_is_not_known_of_a_stated_side_is_no_difference():
    """Its sampling and its cache are not stated."""
    measured_side = TokenWorkload(512, 128, "q4_0", 1, "exact", "synthetic", "greedy", "length", "none", "f16", is_in_process=True)
    assert differences(measured_side, TokenWorkload(512, 128, "q4_0", 32, "stated")) == []


def test_a_stated_edge_is_compared_with_the_server_that_did_its_work(run):
    """Of two lengths measured on the server the stated one counts; both sides may be stated."""
    edge = (
        STATED.replace("[stated.datacenter]", "[stated.edge]")
        .replace("max_w = 900", "net_mj = 500")
        .replace("concurrency = 32", "concurrency = 1")
    )
    short = server_runs(prompt_tokens=16, output_tokens=8)
    short = [msgspec.structs.replace(shorter, dataset=msgspec.structs.replace(shorter.dataset, sha256=SHA_DATA)) for shorter in short]
    printed = json.loads(run([*server_runs(), *short], "--json", constants=edge))
    assert printed["against"][0]["server"]["tokens"]["prompt_tokens"] == 512
    assert any("does other work: prompt tokens 512, there 16; output tokens 11, there 8" in note for note in printed["notes"])
    both = json.loads(run([make_run()], "--json", constants=f"{edge}{STATED}"))
    assert both["edge_request_gross_mj_per_output_token"]["value"] == pytest.approx((300 / 20 * 1000 + 500) / 11)


def test_the_page_explains_every_field_by_the_token(run):
    """Which joules by which tokens over which window: no field is without, and none is made up."""
    page = (ROOT / "docs" / "tasks" / "datacenter.md").read_text()
    printed = run([*edge_runs(), *server_runs()], "--json")
    fields = {name for name in re.findall(r'"(\w+)":', printed) if name.endswith("_per_output_token")}
    ((suffix, rows),) = re.findall(r"^field of `--json`, `\.\.\.(_\w+)` \| .*\n--- .*\n((?:`.*\n)+)", page, re.MULTILINE)
    assert fields == {f"{name}{suffix}" for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}


def test_answers_that_ended_early_have_their_mean_length(run):
    """2.5 tokens on average are 2.5, not 2: 22,000 mJ are 8,800 mJ a token."""
    lengths = TokenLengths(min_tokens=1, p50_tokens=2.5, mean_tokens=2.5, max_tokens=4)
    answers = {"output_lengths": lengths, "ends_at": "end_of_text"}
    printed = json.loads(run([*edge_runs(**answers), *server_runs(**answers)], "--json"))
    assert printed["edge_request_gross_mj_per_output_token"]["value"] == pytest.approx(8800.0)
