"""A task of another package on items that are no photographs: recordings, from the command to the record."""

import json
import os
import subprocess
import sys
import wave

import pytest

from edgemeter.agent import datasets, tasks
from tests.fixtures.plugin_site import install

# Ground truth `clip.wav loud` a line; a clip is scored by the larger of two outputs.
MODULE = """
import wave
import numpy as np
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import AudioInput
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets import GroundTruth, Targets

class Words:
    def recognises(self, folder, annotations):
        return annotations is not None and annotations.suffix == ".words"
    def read(self, folder, annotations):
        return GroundTruth(Targets(dict(line.split() for line in annotations.read_text().splitlines())), annotations)

class Loudness:
    def __init__(self, model, loaded, data):
        if not isinstance(model.input, AudioInput):
            raise ConfigError(f"model {model.name!r} takes no recording")
        self.wanted, self.data, self.right = model.input, data, {}
    def prepare(self, index):
        with wave.open(str(self.data.items[index].file)) as clip:
            assert clip.getframerate() == self.wanted.sample_rate_hz
            pcm = np.frombuffer(clip.readframes(self.wanted.samples), np.int16)
        return [{"clip": (pcm / np.float32(32768)).astype(np.float32)[None], "length": np.array([len(pcm)], np.int32)}]
    def predict(self, index, calls):
        self.right[index] = ("quiet", "loud")[int(calls[0][0].argmax())] == list(self.data.targets.values())[index]
    def same_predictions(self, index, one, other):
        return float(one[0][0].argmax() == other[0][0].argmax())
    def score(self, parts="all"):
        value = sum(self.right.values()) / len(self.right)
        return Accuracy(metric="word", value=value, images=len(self.right), dataset_sha256=self.data.sha256)
"""
CARD = """
name = "ears"
task = "loudness"
family = "classifier"
precision = "fp32"

[input]
kind = "{kind}"
sample_rate_hz = 8000
samples = 80
"""
MODEL = {
    "format": "edgemeter-replay",
    "schema": 1,
    "latencies_ms": [1.0],
    "inputs": [{"name": "length", "shape": [1], "dtype": "int32"}, {"name": "clip", "shape": [1, 80], "dtype": "float32"}],
    "outputs": [{"name": "scores", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}],
}


@pytest.fixture
def measured(tmp_path):
    """Return what runs the model on four clips, three of them loud, where the task is installed."""
    entries = [(tasks.ENTRY_POINTS, "loudness", "ears:Loudness"), (datasets.ENTRY_POINTS, "words", "ears:Words")]
    install(tmp_path / "site", "ears", entries, MODULE)
    (tmp_path / "clips").mkdir()
    for number in range(4):
        with wave.open(str(tmp_path / "clips" / f"{number}.wav"), "wb") as clip:
            clip.setparams((1, 2, 8000, 80, "NONE", ""))
            clip.writeframes(bytes([number, 0]) * 80)
    (tmp_path / "truth.words").write_text("0.wav quiet\n1.wav loud\n2.wav loud\n3.wav loud\n")
    (tmp_path / "ears.replay.json").write_text(json.dumps(MODEL))

    def run(card):
        (tmp_path / "ears.replay.json.toml").write_text(card)
        return subprocess.run(
            [sys.executable, "-m", "edgemeter.agent.cli", "run", "--model", "ears.replay.json", "--data", "clips",
             "--annotations", "truth.words", "--mode", "rapid", "--repeats", "1", "--json"],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "EDGEMETER_HOME": str(tmp_path / "home")},
        )  # fmt: skip

    return run


@pytest.mark.slow
def test_recordings_are_measured_and_scored_by_a_task_of_another_package(measured):
    """Reader, card of kind audio, task, record: nothing on the way takes the clips for photographs, and two inputs find their names."""
    completed = measured(CARD.format(kind="audio"))
    assert completed.returncode == 0, completed.stderr
    (record,) = json.loads(completed.stdout)["runs"]
    assert record["model"]["task"] == "loudness"
    assert (record["accuracy"]["metric"], record["accuracy"]["value"], record["accuracy"]["images"]) == ("word", 0.75, 4)
    assert (record["dataset"]["annotated"], record["dataset"]["turned_by_exif"]) == (True, None)
    assert [(tensor["name"], tensor["shape"]) for tensor in record["inputs"]] == [("length", [1]), ("clip", [1, 80])]


@pytest.mark.slow
def test_a_card_that_promises_another_input_ends_in_one_line(measured):
    """An unknown kind, and one of ours that the task does not take."""
    assert "kind" in measured(CARD.format(kind="smell")).stderr
    tensor = CARD.partition("sample_rate")[0].format(kind="tensor")
    assert "model 'ears' takes no recording" in measured(tensor).stderr
