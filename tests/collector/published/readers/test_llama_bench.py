import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.readers.llama_bench import LlamaBench
from tests.fixtures.published_defaults import DEFAULTS, fixture
from tests.fixtures.rows import table_row

TESTS = json.loads(fixture("llama_bench.json"))
TABLE = fixture("llama_bench.md")


def read(text, defaults=DEFAULTS):
    """Return the table of a text."""
    return LlamaBench().read(text, defaults)


def of_type(model_type, **changes):
    """Return the row of a test of decoding of that type of model."""
    (row,) = read(json.dumps([TESTS[1] | {"model_type": model_type} | changes])).rows
    return row


def test_prefill_and_decoding_are_two_figures():
    """Of n_prompt and n_gen, behind the depth; the mean of the repeats, with their range and deviation."""
    rows = read(fixture("llama_bench.json")).rows
    assert [(row.figure, row.prompt_tokens, row.output_tokens, row.depth_tokens, row.value) for row in rows] == [
        ("prefill-tokens", 512, None, 0, 41.601667),
        ("tokens", None, 128, 0, 9.699267),
        ("tokens", None, 128, 4096, 7.299967),
    ]
    row = rows[1]
    assert (row.statistic, row.unit, row.low, row.high, row.repeats) == ("mean", "tokens/s", 9.6815, 9.7121, 3)
    assert row.standard_deviation == pytest.approx(0.01588, rel=1e-3)


def test_what_the_program_states_of_the_run_is_in_the_row():
    """Model, parameters, quantisation, threads, build, day; the processor is a condition, the board is the user's to name."""
    (row, *_) = read(fixture("llama_bench.json")).rows
    assert (row.model, row.parameters, row.precision) == ("qwen2.5-1.5b-instruct-q4_k_m", 1777088000, "q4_k_m")
    assert (row.threads, row.backend, row.runtime, row.concurrency) == (4, "cpu", "llama", 1)
    assert ("tested 2026-10-30" in row.conditions, row.date) == (True, DEFAULTS["date"])
    assert (row.software, row.device) == ("llama.cpp b8104 (d73c1d6a)", "Raspberry Pi 5")
    assert "weights, MB 1111.37" in row.conditions
    assert "CPU Cortex-A76" in row.conditions


def test_the_size_of_all_weights_is_not_what_a_token_reads():
    """Of a mixture of experts a token reads few of them: only the parameters that the type states."""
    assert of_type("qwen2 1.5B Q4_K - Medium").weights_mb is None
    row = of_type("qwen3moe 30B.A3B Q4_K - Medium", backends="CUDA", n_gpu_layers=20, gpu_info="A GPU")
    assert (row.weights_mb, row.read_parameters, row.backend) == (None, 3e9, "CUDA")
    assert "GPU A GPU" in row.conditions
    assert "gpu layers 20" in row.conditions


def test_the_quantisation_is_named_as_its_file_names_it():
    """As our own runs do; one that the program guessed is not stated."""
    for model_type, precision in (
        ("llama 7B mostly Q4_0", "q4_0"),
        ("llama 8B Q3_K - Small", "q3_k_s"),
        ("llama 8B Q2_K - Medium", "q2_k"),
        ("llama 8B IQ2_XXS - 2.0625 bpw", "iq2_xxs"),
        ("gemma3 270M BF16", "bf16"),
        ("llama 1B all F32", "f32"),
        ("gpt-oss 20B MXFP4 MoE", "mxfp4"),
        ("llama 8B Q4_K - Medium (guessed)", None),
        ("llama 8B", None),
    ):
        with table_row(model_type):
            assert of_type(model_type).precision == precision


def test_a_rate_of_prompt_and_output_together_is_named():
    """A test `pg` is neither."""
    assert read(fixture("llama_bench.json")).left_out == ("test 4: a rate of 512 prompt and 128 output tokens together is no figure",)
    assert read(TABLE).left_out == ("line 6: no figure: test 'pp512+tg128', t/s '25.10 ± 0.10'",)


def test_a_table_holds_the_same_figures():
    """In the precision that it prints; its model is a type."""
    rows = read(TABLE).rows
    assert [(row.figure, row.value, row.standard_deviation) for row in rows] == [
        ("prefill-tokens", 41.6, 0.33),
        ("tokens", 9.7, 0.02),
        ("tokens", 7.3, 0.01),
    ]
    row = rows[2]
    assert (row.model, row.parameters, row.precision, row.depth_tokens) == ("qwen2 1.5B Q4_K - Medium", 1.78e9, "q4_k_m", 4096)
    assert (row.threads, row.backend, row.software, row.conditions) == (
        4,
        "cpu",
        "llama.cpp b8104 (d73c1d6a)",
        "llama-bench, size 1.04 GiB",
    )


def test_a_table_of_an_older_version_is_read():
    """Tests with a space, layers on a GPU, no build; columns that only it has are conditions."""
    table = (
        "| model | size | params | backend | ngl | n_batch | test | t/s |\n|---|---:|---|---|---|---|---|---|\n"
        "| llama 7B mostly Q4_0 | 3.56 GiB | 6.74 B | CUDA | 99 | 512 | tg 128 | 132.19 ± 0.55 |\n"
        "| a model | - | - | - | - | - | tg 128 | fast |\n"
        "\n| no | such |\n|---|---|\n| table | here |\n"
    )
    result = read(table)
    (row,) = result.rows
    assert (row.value, row.backend, row.threads, row.software) == (132.19, "CUDA", None, None)
    assert row.conditions == "llama-bench, size 3.56 GiB, ngl 99, n_batch 512"
    assert [reason.split(":")[0] for reason in result.left_out] == ["line 4", "table at line 6"]


def test_lines_of_json_are_read_up_to_where_they_break_off():
    """`-o jsonl` of a run that was ended; one whole JSON that is cut has no end to go by."""
    lines = "\n".join(map(json.dumps, TESTS))
    assert read(lines).rows == read(fixture("llama_bench.json")).rows
    cut = read(lines[:-40])
    assert len(cut.rows) == 3
    assert cut.left_out[0].startswith("line 4: not understood")
    with pytest.raises(ConfigError, match="no whole JSON of llama-bench"):
        read(fixture("llama_bench.json")[:-40])


def test_a_test_that_lacks_a_field_is_named():
    """The others are read."""
    result = read(json.dumps([{"avg_ts": 3.0}, TESTS[1]]))
    assert len(result.rows) == 1
    assert "test 1: not understood: Object missing required field" in result.left_out[0]


def test_a_table_of_a_page_has_the_build_that_is_printed_below_it():
    """A thread of tables of several builds; one without a line of its own has none."""
    later = TABLE.replace("d73c1d6a (8104)", "0badcafe (9001)").replace("tg128", "tg64")
    cut = TABLE.replace("build: d73c1d6a (8104)", "").replace("tg128", "tg32")
    rows = read(f"{TABLE}\n{later}\n{cut}").rows
    assert {row.output_tokens: row.software for row in rows if row.output_tokens} == {
        128: "llama.cpp b8104 (d73c1d6a)",
        64: "llama.cpp b9001 (0badcafe)",
        32: None,
    }
