"""Facts about speech by an encoder and a decoder in two ONNX files: one model, timed whole, decoded greedily, scored from end to end."""

import json
import subprocess
import sys

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.audio.front_end import features
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from tests.fixtures.audio_factory import write_recording

pytest.importorskip("onnx", reason="needs onnx, to make the model")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
from tests.fixtures.tiny_speech import END, FRONT, START, WORDS, spoken, write_model

SPEECH = {
    "7-1-0": ("yes",), "7-1-1": ("no", "go"), "7-1-2": ("stop", "stop", "yes", "no"), "7-1-3": ("go", "yes", "no", "stop", "go"),
}  # fmt: skip


def edgemeter(*words):
    """Run a command and return what it did."""
    command = [sys.executable, "-m", "edgemeter.agent.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def tokens_of(model, samples):
    """Return the tokens that the runtime gives for a recording."""
    runtime = runtimes.create("onnx")
    try:
        runtime.load(model, runtimes.Options())
        runtime.bind([features(samples, 16000, FRONT).T[None].astype(np.float32)])()
        return runtime.outputs()[0].tolist()
    finally:
        runtime.close()


@pytest.fixture
def librispeech(tmp_path):
    """Return a folder as LibriSpeech's, one word of which is written down wrong, another that is not said."""
    texts = {name: " ".join(words).upper() for name, words in SPEECH.items()}
    texts["7-1-1"] = "NO WAY GO"
    texts["7-1-2"] = "STOP STOP YES GO"
    for name, words in SPEECH.items():
        write_recording(tmp_path / "set" / "7" / "1" / f"{name}.wav", spoken(*words))
    (tmp_path / "set" / "7" / "1" / "7-1.trans.txt").write_text("".join(f"{name} {text}\n" for name, text in texts.items()))
    return tmp_path / "set"


def test_tokens_are_decoded_until_silence_or_the_limit(tmp_path):
    """The start token, then a token a word; five words end at the limit."""
    model = write_model(tmp_path)
    assert tokens_of(model, spoken("no", "go")) == [[START, WORDS.index("no"), WORDS.index("go")]]
    assert tokens_of(model, spoken()) == [[START]]
    assert tokens_of(model, spoken(*SPEECH["7-1-3"]))[0][1:] == [WORDS.index(word) for word in SPEECH["7-1-3"]]


def test_forced_and_suppressed_tokens_are_obeyed(tmp_path):
    """As Whisper's configuration names language and task, and what is never said."""
    model = write_model(tmp_path)
    path = tmp_path / "generation_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"forced_decoder_ids": [[1, 3]], "suppress_tokens": [0], "begin_suppress_tokens": [END]}))
    tokens = tokens_of(model, spoken("yes", "no"))[0]
    # The first piece is passed over for the forced token; `no` follows, then silence.
    assert tokens == [START, 3, WORDS.index("no")]
    path.write_text(json.dumps(config | {"begin_suppress_tokens": [END], "eos_token_id": [END]}))
    assert tokens_of(model, spoken())[0][:1] == [START]
    assert len(tokens_of(model, spoken())[0]) == 2


def test_both_files_are_the_model(tmp_path):
    """The hash changes with either, and with how it decodes."""
    model = write_model(tmp_path)
    first = model_file.sha256(model)
    assert {path.name for path in model_file.parts(model)} == {
        "encoder_model.onnx", "decoder_model.onnx", "generation_config.json", "vocab.json",
    }  # fmt: skip
    (tmp_path / "generation_config.json").write_text('{"decoder_start_token_id": 4, "eos_token_id": 5}')
    assert model_file.sha256(model) != first


def test_a_missing_or_wrong_part_ends_in_one_line(tmp_path):
    """Named, with what to do."""
    model = write_model(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    with pytest.raises(ConfigError, match=r"generation_config\.json'.*decoder_start_token_id"):
        runtimes.create("onnx").load(model, runtimes.Options())
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*generation_config\.json'.*names the start and end"):
        runtimes.create("onnx").load(model, runtimes.Options())
    write_model(tmp_path)
    (tmp_path / "decoder_model.onnx").write_bytes((tmp_path / "encoder_model.onnx").read_bytes())
    with pytest.raises(ConfigError, match="takes input_features; input_ids and encoder_hidden_states are right"):
        runtimes.create("onnx").load(model, runtimes.Options())


@pytest.mark.slow
def test_speech_is_scored_from_end_to_end(tmp_path, librispeech):
    """From LibriSpeech's folders: of 13 words one is wrong and one was not heard."""
    model = write_model(tmp_path / "model")
    result = edgemeter("accuracy", "--model", model, "--data", librispeech, "--json")
    assert result.returncode == 0, result.stderr
    accuracy = json.loads(result.stdout)
    assert accuracy["wer"] == pytest.approx(2 / 13)
    assert (accuracy["substitutions"], accuracy["deletions"], accuracy["insertions"]) == (1 / 13, 1 / 13, 0.0)
    assert accuracy["normalisation"] == "whisper-basic"


@pytest.mark.slow
def test_a_run_holds_the_real_time_factor_and_the_rule(tmp_path, librispeech):
    """Latency over a second of sound; the gate is passed from above, since less is better."""
    model = write_model(tmp_path / "model")
    options = ("--mode", "rapid", "--repeats", "1", "--reference-accuracy", "0.2")
    result = edgemeter("run", model, "--data", librispeech, *options, "--json")
    assert result.returncode == 0, result.stderr
    (run,) = json.loads(result.stdout)["runs"]
    assert run["real_time_factor"] == pytest.approx(run["latency"]["mean_ms"] / 1000, rel=1e-6)
    assert (run["accuracy"]["metric"], run["accuracy"]["better"], run["accuracy"]["normalisation"]) == ("wer", "lower", "whisper-basic")
    assert (run["accuracy_gate"]["passed"], run["model"]["task"]) == (True, "speech-recognition")
    assert run["output_check"]["differing"] == 0


@pytest.mark.slow
def test_recordings_without_transcripts_are_timed(tmp_path, librispeech):
    """The real-time factor needs the length of the recordings only; without transcripts there is no word error rate, with the reason."""
    model, clips = write_model(tmp_path / "model"), librispeech / "7" / "1"
    (clips / "7-1.trans.txt").unlink()
    result = edgemeter("run", model, "--data", clips, "--mode", "rapid", "--repeats", "1", "--json")
    assert result.returncode == 0, result.stderr
    (run,) = json.loads(result.stdout)["runs"]
    assert run["real_time_factor"] > 0
    assert (run["dataset"]["annotated"], run["accuracy"]) == (False, None)
