from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import suite as contract_suite
from edgemeter.agent.settings.files import SAMPLE
from tests.fixtures.rows import table_row
from tests.fixtures.suite_files import read_suite


def _suite(tmp_path, text):
    path = tmp_path / "suite.toml"
    path.write_text(text)
    return read_suite(path)


def test_the_sample_expands_models_and_threads(tmp_path):
    """The sample has five cases, and is still valid with all commented keys switched on."""
    suite = read_suite(SAMPLE)
    assert [(Path(case.model).name, case.threads) for case in suite.cases] == [
        ("detector_fp32.tflite", 1),
        ("detector_fp32.tflite", 2),
        ("detector_int8.tflite", 1),
        ("detector_int8.tflite", 2),
        ("detector_fp32.onnx", 1),
    ]
    lines = SAMPLE.read_text().splitlines()
    text = "\n".join(line.removeprefix("# ") for line in lines).replace('"..."', f'"{"0" * 64}"')
    assert len(_suite(tmp_path, text).cases) > 20


def test_lengths_of_a_language_model_are_swept_and_have_defaults(tmp_path):
    """Every prompt length is combined with every output length; the default is 512+128.

    Defaults that are meant for images do not apply to a language model.
    """
    text = (
        'name = "m"\n[defaults]\ndata = "i"\n[[case]]\nmodel = "a.gguf"\n{}\n[[case]]\n'
        'model = "b.onnx"\n'
    )
    suite = _suite(tmp_path, text.format("prompt_tokens = [128, 512]\noutput_tokens = [1, 64]"))
    lengths_of_cases = [
        (case.prompt_tokens, case.output_tokens, case.runtime, case.data is None)
        for case in suite.cases
    ]
    lengths = [(128, 1), (128, 64), (512, 1), (512, 64)]
    assert lengths_of_cases == [
        *((*pair, "llama", True) for pair in lengths),
        (None, None, "onnx", False),
    ]
    plain = _suite(tmp_path, text.format("")).cases[0]
    assert (plain.prompt_tokens, plain.output_tokens, plain.queries) == (512, 128, 11)
    assert plain.label == "a.gguf llama 1 thread 512+128 tokens"
    assert _suite(tmp_path, text.format('mode = "normal"')).cases[0].queries == 64


def test_a_replay_generates_where_lengths_are_given(tmp_path):
    """One runtime name plays both kinds of recordings."""
    cases = _suite(
        tmp_path,
        'name = "m"\n[[case]]\nmodel = "a.replay.json"\n[[case]]\nmodel = "a.replay.json"\n'
        "prompt_tokens = 8\n",
    ).cases
    assert [(case.runtime, case.output_tokens) for case in cases] == [
        ("replay", None),
        ("replay", 128),
    ]


def test_a_key_of_one_scenario_chooses_it(tmp_path):
    """`--rate 1,2` needs no `--scenario poisson`, as `--concurrency` needs none."""
    for key, scenario in [
        ("rate_per_s = [1, 2]", "poisson"),
        ("concurrency = 2", "concurrent"),
        ('runtime = "served"\nrate_per_s = 15\ndeadline = "60ms"', "steady"),
        ('runtime = "served"\nbatch = 2', "offline"),
    ]:
        with table_row(key):
            cases = _suite(tmp_path, f'name = "m"\n[[case]]\nmodel = "m.server"\n{key}\n').cases
            assert {case.scenario for case in cases} == {scenario}


def test_a_served_model_has_users_and_rates(tmp_path):
    """A list of users or rates gives a case each, as with a served language model."""
    begin = 'name = "m"\n[[case]]\nmodel = "m.server"\nruntime = "served"\n'
    users = _suite(tmp_path, begin + "concurrency = [1, 2, 4]").cases
    assert [(case.scenario, case.concurrency) for case in users] == [
        ("concurrent", number) for number in (1, 2, 4)
    ]
    assert [
        case.rate_per_s for case in _suite(tmp_path, begin + "rate_per_s = [10.0, 20.0]").cases
    ] == [10.0, 20.0]


def test_a_deadline_lies_between_a_microsecond_and_an_hour():
    """It is written in us, ms or s, and the refusal of any other text fits on one line."""
    assert [
        contract_suite.parse_deadline_ms(text) for text in ("1us", "60ms", "0.001 ms", "3600s")
    ] == [0.001, 60.0, 0.001, 3_600_000.0]
    for text in [
        "0.9us",
        "0.0000001ms",
        "3601s",
        f"{'9' * 400}ms",
        "0s",
        "60",
        "1h",
        "1ns",
        "",
        "-5ms",
        "1e3ms",
        "ms",
    ]:
        with table_row(text), pytest.raises(ConfigError, match="deadline") as refusal:
            contract_suite.parse_deadline_ms(text)
        assert len(str(refusal.value)) < 120, text


def test_what_a_language_model_cannot_have_is_refused(tmp_path):
    """No setting that was asked for is left out silently."""
    for keys, says in [
        (
            'model = "a.onnx"\nprompt_tokens = 8',
            "only language models take prompt_tokens, and onnx runs none",
        ),
        ('model = "a.onnx"\nquestions = "q.jsonl"', "only language models take questions"),
        ('model = "a.onnx"\nannotations = "truth.json"', "annotations need data: give --data PATH"),
        ('model = "a.gguf"\nconcurrency = 2', "llama answers one query after the other"),
        ('model = "a.onnx"\ndeadline = "60ms"', "steady needs rate_per_s: add rate_per_s = NUMBER"),
        (
            'model = "a.onnx"\nrate_per_s = 15\ndeadline = "fast"',
            "deadline 'fast' is not a time .* write 500us, 60ms",
        ),
        (
            'model = "a.onnx"\nscenario = "poisson"\nrate_per_s = 15\ndeadline = "60ms"',
            "deadline is for steady",
        ),
        ('model = "a.gguf"\nrate_per_s = 15\ndeadline = "60ms"', "single_stream, .* not steady"),
        (
            'model = "m.server"\nscenario = "single_stream"\nconcurrency = 2',
            "concurrency is for concurrent",
        ),
        ('model = "a.gguf"\ndata = "i"', "data is not for language models"),
    ]:
        with table_row(keys), pytest.raises(ConfigError, match=says):
            _suite(tmp_path, f'name = "m"\n[[case]]\n{keys}\n')


def test_frames_at_a_rate_last_for_the_seconds_that_were_asked_for(tmp_path):
    """The seconds decide however few frames come in them, and without them the mode does.

    The length of the case is that of its schedule.
    """
    begin = 'name = "m"\n[[case]]\nmodel = "a.onnx"\nscenario = "steady"\n'
    for keys, queries, seconds in (
        ("seconds = 120", 1, 120.0),
        ('mode = "sustained"', 64, 1800.0),
        ("", 128, 1280.0),
        ("rate_per_s = 15", 128, 10.0),
    ):
        (case,) = _suite(
            tmp_path, begin + (keys if "rate" in keys else f"rate_per_s = 0.1\n{keys}")
        ).cases
        assert (case.queries, case.seconds, case.deadline_ms) == (queries, seconds, None)


def test_a_matrix_leaves_out_what_a_runtime_cannot_read(tmp_path):
    """Two of the combinations of models and runtimes cannot work; they are named, not failed."""
    suite = _suite(
        tmp_path,
        'name = "m"\n[[case]]\nmodel = ["a.tflite", "a.onnx"]\nruntime = ["litert", "onnx"]\n',
    )
    assert [(Path(c.model).name, c.runtime) for c in suite.cases] == [
        ("a.tflite", "litert"),
        ("a.onnx", "onnx"),
    ]
    assert suite.left_out == (
        "case 1: onnx does not read a.tflite",
        "case 1: litert does not read a.onnx",
    )


def test_a_wrong_suite_is_refused_with_the_place(tmp_path):
    """A typo, a wrong value, a missing key or a run of years names its path in the file."""
    for text, says in [
        (
            'name = "m"\n[[case]]\nmodel = "a.onnx"\nthread = 2\n',
            r"`thread` in \[\[case\]\] number 1 is not a key: did you mean threads",
        ),
        (
            'name = "m"\n[defaults]\nmode = "fast"\n[[case]]\nmodel = "a.onnx"\n',
            r"`mode` in \[defaults\] is 'fast', which is unknown",
        ),
        ('name = "m"\n[[case]]\nruntime = "onnx"\n', r"case 1 names no model"),
        ('name = "m"\n[[case]]\nmodel = "a.xyz"\n', "no runtime is known for 'a.xyz'"),
        ('name = "m"\n[[case]]\nmodel = "a.onnx"\nruntime = "litert"\n', "nothing to measure"),
    ]:
        with table_row(text), pytest.raises(ConfigError, match=says):
            _suite(tmp_path, text)
    for keys, says in [
        ("rate_per_s = 1e-9", "`rate_per_s` in .* has to be a number from 0.001 to 1e.06"),
        ("seconds = 1e300", "`seconds` in .* has to be a number from 0 to 2.592e.06"),
    ]:
        with table_row(keys), pytest.raises(ConfigError, match=says):
            _suite(tmp_path, f'name = "m"\n[[case]]\nmodel = "a.onnx"\n{keys}\n')


def test_predictions_are_of_coco_annotations_and_each_case_has_its_file(tmp_path):
    """The refusal is one line that names the case."""
    case = '[[case]]\nmodel = ["a.onnx", "b.onnx"]\ndata = "photos"\npredictions = "found.json"\n'
    for settings, words in (
        ('annotations = "labels"', "predictions of a.onnx .* give annotations = FILE.json of COCO"),
        (
            'annotations = "truth.json"',
            "predictions of a.onnx .* and of b.onnx .* go to the same file",
        ),
    ):
        with table_row(settings), pytest.raises(ConfigError, match=words):
            _suite(tmp_path, f'name = "x"\n{case}{settings}\n')


def test_paths_are_relative_to_the_suite(tmp_path):
    """A suite works from any working directory."""
    suite = _suite(tmp_path, 'name = "m"\n[[case]]\nmodel = "a.onnx"\ndata = "photos"\n')
    assert (suite.cases[0].model, suite.cases[0].data) == (
        str(tmp_path / "a.onnx"),
        str(tmp_path / "photos"),
    )
