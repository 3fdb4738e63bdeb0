"""Facts about `edgemeter.agent.contract.suite`."""

from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import suite as contract_suite
from tests.fixtures.rows import table_row

SAMPLE = contract_suite.SAMPLE


def _suite(tmp_path, text):
    path = tmp_path / "suite.toml"
    path.write_text(text)
    return contract_suite.read(path)


def test_the_sample_expands_precisions_and_threads(tmp_path):
    """Five cases; with all commented keys switched on it still reads."""
    suite = contract_suite.read(SAMPLE)
    assert [(Path(c.model).name, c.threads, c.role) for c in suite.cases] == [
        ("detector_fp32.tflite", 1, "device"),
        ("detector_fp32.tflite", 2, "device"),
        ("detector_int8.tflite", 1, "device"),
        ("detector_int8.tflite", 2, "device"),
        ("detector_fp32.onnx", 1, "reference"),
    ]
    lines = SAMPLE.read_text().splitlines()
    text = "\n".join(line.removeprefix("# ") for line in lines).replace('"..."', f'"{"0" * 64}"')
    assert len(_suite(tmp_path, text).cases) > 20


def test_lengths_of_a_language_model_are_swept_and_have_defaults(tmp_path):
    """Prompts x outputs, 512+128 where nothing is set; what the defaults have for images does not reach it."""
    text = 'name = "m"\n[defaults]\ndata = "i"\n[[case]]\nmodel = "a.gguf"\n{}\n[[case]]\nmodel = "b.onnx"\n'
    suite = _suite(tmp_path, text.format("prompt_tokens = [128, 512]\noutput_tokens = [1, 64]"))
    lengths_of_cases = [(case.prompt_tokens, case.output_tokens, case.runtime, case.data is None) for case in suite.cases]
    lengths = [(128, 1), (128, 64), (512, 1), (512, 64)]
    assert lengths_of_cases == [*((*pair, "llama", True) for pair in lengths), (None, None, "onnx", False)]
    plain = _suite(tmp_path, text.format("")).cases[0]
    assert (plain.prompt_tokens, plain.output_tokens, plain.queries, plain.agreement) == (512, 128, 11, "never")
    assert plain.label == "a.gguf llama 1 thread 512+128 tokens"
    assert _suite(tmp_path, text.format('mode = "normal"')).cases[0].queries == 64


def test_a_replay_generates_where_lengths_are_given(tmp_path):
    """The same runtime name plays both kinds of recordings."""
    cases = _suite(tmp_path, 'name = "m"\n[[case]]\nmodel = "a.json"\n[[case]]\nmodel = "a.json"\nprompt_tokens = 8\n').cases
    assert [(case.runtime, case.output_tokens) for case in cases] == [("replay", None), ("replay", 128)]


def test_a_key_of_one_scenario_chooses_it(tmp_path):
    """`--rate 1,2` needs no `--scenario poisson`, as `--concurrency` needs none."""
    for key, scenario in [
        ("rate_per_s = [1, 2]", "poisson"),
        ('rate_per_s = "auto"', "poisson"),
        ("concurrency = 2", "concurrent"),
        ('runtime = "served"\nrate_per_s = 15\ndeadline = "60ms"', "steady"),
        ('runtime = "served"\nrate_per_s = 15\nqueue_frames = 2', "steady"),
    ]:
        with table_row(key):
            cases = _suite(tmp_path, f'name = "m"\n[[case]]\nmodel = "m.server"\n{key}\n').cases
            assert {case.scenario for case in cases} == {scenario}


def test_a_served_model_has_users_rates_and_limits(tmp_path):
    """As a language model behind a server has: lists are sweeps, and `auto` is a search of single runs with a p90 each."""
    begin = 'name = "m"\n[[case]]\nmodel = "m.server"\nruntime = "served"\nslo = "latency=50ms"\n'
    users = _suite(tmp_path, begin + "concurrency = [1, 2, 4]").cases
    assert [(case.scenario, case.concurrency, case.slo) for case in users] == [("concurrent", n, {"latency": 50.0}) for n in (1, 2, 4)]
    assert [case.rate_per_s for case in _suite(tmp_path, begin + "rate_per_s = [10.0, 20.0]").cases] == [10.0, 20.0]
    (search,) = _suite(tmp_path, begin + 'rate_per_s = "auto"\nmode = "rapid"\nscenario = "poisson"').cases
    assert (search.rate_per_s, search.repeats, search.queries) == (None, 1, 64)


def test_what_a_language_model_cannot_have_is_refused(tmp_path):
    """Nothing that was asked for is left out silently."""
    for keys, says in [
        ('model = "a.onnx"\nprompt_tokens = 8', "onnx runs one call"),
        ('model = "a.onnx"\nannotations = "truth.json"', "annotations are of data: add data"),
        ('model = "a.gguf"\nconcurrency = 2', "llama answers one query after the other"),
        ('model = "a.onnx"\nscenario = "steady"\nrate_per_s = "auto"', "not searched for: give rate_per_s = NUMBER"),
        ('model = "a.onnx"\ndeadline = "60ms"', "steady needs rate_per_s: add rate_per_s = NUMBER"),
        ('model = "a.onnx"\nrate_per_s = 15\ndeadline = "fast"', "deadline 'fast' is no time .* write 500us, 60ms"),
        ('model = "a.onnx"\nscenario = "poisson"\nrate_per_s = 15\ndeadline = "60ms"', "deadline is for steady"),
        ('model = "a.gguf"\nrate_per_s = 15\ndeadline = "60ms"', "single_stream, .* not steady"),
        ('model = "m.server"\nruntime = "served"\nslo = "ttft=500ms"', "slo ttft is of tokens, .* latency=50ms"),
        ('model = "m.server"\nscenario = "single_stream"\nconcurrency = 2', "concurrency is for concurrent"),
        ('model = "a.gguf"\ndata = "i"', "data is not for language models"),
    ]:
        with table_row(keys), pytest.raises(ConfigError, match=says):
            _suite(tmp_path, f'name = "m"\n[[case]]\n{keys}\n')


def test_frames_at_a_rate_last_for_the_minutes_that_were_asked_for(tmp_path):
    """However few come in them; without minutes the mode decides; the length of the case is that of its schedule."""
    begin = 'name = "m"\n[[case]]\nmodel = "a.onnx"\nscenario = "steady"\n'
    for keys, queries, seconds in (
        ("minutes = 2", 1, 120.0),
        ("", 128, 1280.0),
        ("minutes = 2\nqueries = 20", 20, 200.0),
        ("rate_per_s = 15", 128, 10.0),
    ):
        (case,) = _suite(tmp_path, begin + (keys if "rate" in keys else f"rate_per_s = 0.1\n{keys}")).cases
        assert (case.queries, case.seconds, case.deadline_ms, case.queue_frames) == (queries, seconds, None, 1)


def test_a_matrix_leaves_out_what_a_runtime_cannot_read(tmp_path):
    """Models x runtimes: the two combinations that cannot work are named, not failed."""
    suite = _suite(tmp_path, 'name = "m"\n[[case]]\nmodel = ["a.tflite", "a.onnx"]\nruntime = ["litert", "onnx"]\n')
    assert [(Path(c.model).name, c.runtime) for c in suite.cases] == [("a.tflite", "litert"), ("a.onnx", "onnx")]
    assert suite.left_out == ("case[0]: onnx does not read a.tflite", "case[0]: litert does not read a.onnx")


def test_a_wrong_suite_is_refused_with_the_place(tmp_path):
    """A typo, a wrong value, a missing key or a run of years names its path in the file."""
    for text, says in [
        ('name = "m"\n[[case]]\nmodel = "a.onnx"\nthread = 2\n', r"\[\[case\]\] number 1 thread: no such key: did you mean threads"),
        ('name = "m"\n[defaults]\nmode = "fast"\n[[case]]\nmodel = "a.onnx"\n', r"\[defaults\] mode: 'fast' is unknown"),
        ('name = "m"\n[[case]]\nruntime = "onnx"\n', r"case\[0\] names no model"),
        ('name = "m"\n[[case]]\nmodel = "a.xyz"\n', "no runtime is known for 'a.xyz'"),
        ('name = "m"\n[[case]]\nmodel = "a.onnx"\nruntime = "litert"\n', "nothing to measure"),
    ]:
        with table_row(text), pytest.raises(ConfigError, match=says):
            _suite(tmp_path, text)
    for keys, says in [
        ("rate_per_s = 1e-9", "rate_per_s: expected a number of at least 0.001 and of at most 1e.06"),
        ("rate_per_s = 15.0\nminutes = 1e300", "minutes: expected a number above 0 and of at most 43200"),
        ("seconds = 1e300", "seconds: .*at most 2.592e.06"),
    ]:
        with table_row(keys), pytest.raises(ConfigError, match=says):
            _suite(tmp_path, f'name = "m"\n[[case]]\nmodel = "a.onnx"\n{keys}\n')


def test_predictions_are_of_coco_annotations_and_each_case_has_its_file(tmp_path):
    """One line that names the case."""
    case = '[[case]]\nmodel = ["a.onnx", "b.onnx"]\ndata = "photos"\npredictions = "found.json"\n'
    for settings, words in (
        ('annotations = "labels"', "predictions of a.onnx .* give annotations = FILE.json of COCO"),
        ('annotations = "truth.json"\naccuracy = "never"', "leave accuracy = never out"),
        ('annotations = "truth.json"', "predictions of a.onnx .* and of b.onnx .* go to the same file"),
    ):
        with table_row(settings), pytest.raises(ConfigError, match=words):
            _suite(tmp_path, f'name = "x"\n{case}{settings}\n')


def test_paths_are_relative_to_the_suite(tmp_path):
    """A suite works from any working directory."""
    suite = _suite(tmp_path, 'name = "m"\n[[case]]\nmodel = "a.onnx"\ndata = "photos"\n')
    assert (suite.cases[0].model, suite.cases[0].data) == (str(tmp_path / "a.onnx"), str(tmp_path / "photos"))
