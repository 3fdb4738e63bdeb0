from edgemeter.collector.published import create
from tests.fixtures.published_pages import facts, page, read_page

NAME = "rknn_llm.md"


def test_a_model_has_its_first_token_its_rate_and_its_memory():
    """The chip is the heading above, the model's name the one above an empty cell."""
    rows = read_page("rknn_llm", page(NAME)).rows
    assert [facts(row, "figure", "value", "unit") for row in rows[:3]] == [
        ("ttft", 400.25, "ms"), ("tokens", 16.5, "tokens/s"), ("memory", 1700.5, "MB"),
    ]  # fmt: skip
    assert facts(rows[0], "model", "device", "precision", "prompt_tokens", "output_tokens") == ("Parrot 1.5B", "RK3588", "w8a8", 128, 64)
    assert facts(rows[0], "parameters", "read_parameters") == (1.5e9, None)
    assert facts(rows[0], "power_mode", "version", "software") == ("maximum CPU and NPU frequencies", "9.2.0", "RKLLM 9.2.0")
    assert facts(rows[3], "model", "parameters", "read_parameters") == ("Parrot 3B(A570M)", 3e9, 570e6)


def test_a_size_that_is_no_number_of_parameters_is_not_stated():
    """E2B are effective ones."""
    assert next(row.parameters for row in read_page("rknn_llm", page(NAME)).rows if row.model == "Gull E2B") is None


def test_the_encoder_and_decoding_of_models_that_see_pictures_are_figures():
    """Each in the unit of its cell and on the chip of its column; the prefill is a part of the first token."""
    rows = [row for row in read_page("rknn_llm", page(NAME)).rows if row.model == "Parrot-VL"]
    assert [facts(row, "figure", "canonical", "device", "precision") for row in rows] == [
        ("image-encode", (3250, "ms"), "RK3588", "FP16"),
        ("image-encode", (800, "ms"), "RK3576", "FP16"),
        ("tokens", (16.5, "tokens/s"), "RK3588", "w8a8"),
        ("tokens", (14, "tokens/s"), "RK3576", "w4a16"),
    ]
    assert rows[0].input_size == "392x392"


def test_the_table_of_older_releases_has_its_chip_in_a_column():
    """Its memory is in G, which is neither GB nor GiB."""
    rows = read_page("rknn_llm", page(NAME)).rows[-2:]
    assert [facts(row, "figure", "value", "device", "model") for row in rows] == [
        ("ttft", 300, "RK3576", "Gull"),
        ("tokens", 20.5, "RK3576", "Gull"),
    ]
    assert rows[0].conditions == "64 tokens in, 256 out, context 320"


def test_what_is_left_out_is_named():
    """With its line."""
    assert read_page("rknn_llm", page(NAME)).left_out == (
        "line 10, ttft(ms): '-' is not a number",
        "line 11, tokens/s: 'N/A' is not a number",
        "line 18: Parrot-VL, stage 'Prefill(len=196)': a part of the first token, which is no figure",
        "table at line 25: memory(G) is left out: it says neither GB nor GiB",
    )


def test_the_benchmark_is_recognised():
    """Other pages are not."""
    reader = create("rknn_llm")
    assert reader.recognises("benchmark.md", page(NAME))
    assert not any(reader.recognises(name, page(name)) for name in ("rknn_zoo.md", "ultralytics.md", "table.md"))
