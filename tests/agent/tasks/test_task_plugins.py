"""The tasks in docs/examples/plugins are tested with the data they read.

One of them is run from the command to the record.
"""

import json
import os
import runpy
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks import prepared
from tests.fixtures.command import edgemeter
from tests.fixtures.vision_factory import make_card, make_loaded, tensors

PLUGINS = Path(__file__).resolve().parents[3] / "docs" / "examples" / "plugins"
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "good",
    "bad",
    "film",
    "##s",
    "who",
    "?",
    "ada",
    "wrote",
    "it",
    ".",
]
BERT = [
    TensorInfo(name, (1, 12), "int64") for name in ("input_ids", "attention_mask", "token_type_ids")
]


@pytest.fixture
def plugin(tmp_path):
    """Return a function that runs a plug-in's file, which lies beside its vocabulary."""

    def run(name):
        shutil.copy(PLUGINS / name, tmp_path)
        (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
        return runpy.run_path(str(tmp_path / name))

    return run


def scored(make, card, loaded, data, answers):
    """Return the accuracy of a task whose item i gets the outputs `answers[i]`.

    The outputs are given call by call.
    """
    task = make(card, loaded, data)
    for index, calls in enumerate(answers):
        assert len(prepared(task, index, loaded)) == len(calls)
        task.predict(index, calls)
        assert task.same_predictions(index, calls, calls) == 1.0
    return task.score()


def test_tables_of_glue_are_scored_by_their_metric(plugin, tmp_path):
    """SST-2, MRPC, STS-B and QNLI are scored.

    Class names are in alphabetical order where a card has no labels.
    """
    glue = plugin("glue.py")
    for table, outputs, expected in [
        (
            "sentence\tlabel\ngood films\t1\nbad\t0\ngood\t1\n",
            [[[0, 1]], [[0, 1]], [[0, 1]]],
            ("accuracy", 2 / 3),
        ),
        (
            "Quality\t#1 String\t#2 String\n1\tgood\tbad\n0\tgood\tfilm\n1\tit\tit\n",
            [[[0, 1]], [[0, 1]], [[1, 0]]],
            ("f1", 0.5),
        ),
        (
            "sentence1\tsentence2\tscore\ngood\tgood\t5.0\ngood\tbad\t1.0\nbad\tit\t0.0\n",
            [[[2.0]], [[0.4]], [[0.0]]],
            ("pearson", 1.0),
        ),
        (
            "question\tsentence\tlabel\nwho?\tada\tentailment\nwho?\tit\tnot_entailment\n",
            [[[1, 0]], [[0, 1]]],
            ("accuracy", 1.0),
        ),
    ]:
        (tmp_path / "dev.tsv").write_text(table)
        data = open_folder(tmp_path / "dev.tsv", reader=glue["Tables"]())
        loaded = make_loaded(tensors(np.shape(outputs[0])), BERT)
        accuracy = scored(
            glue["Glue"],
            make_card("any"),
            loaded,
            data,
            [[[np.array(values, np.float32)]] for values in outputs],
        )
        assert (accuracy.metric, pytest.approx(accuracy.value), accuracy.images) == (
            *expected,
            len(outputs),
        )


def test_answers_are_scored_by_squads_rule(plugin, tmp_path):
    """The score is the words' F1 with the best right answer.

    Articles and punctuation do not count, and where there is no answer none is right.
    """
    squad = plugin("squad.py")
    assert (squad["f1"]("The U.S.", "us"), squad["f1"]("it", "")) == (1.0, 0.0)
    answers_by_question = [("who?", ["Ada", "Ada wrote"]), ("who?", []), ("who?", ["it"])]
    questions = [
        {
            "id": f"q{number}",
            "question": text,
            "answers": [{"text": right, "answer_start": 0} for right in answers],
        }
        for number, (text, answers) in enumerate(answers_by_question)
    ]
    (tmp_path / "dev.json").write_text(
        json.dumps({"data": [{"paragraphs": [{"context": "Ada wrote it.", "qas": questions}]}]})
    )
    data = open_folder(tmp_path / "dev.json", reader=squad["Questions"]())
    # [CLS] who ? [SEP] ada wrote it . [SEP]: the first answer is `Ada wrote`, the second none, the
    # third `wrote it`.
    spans, answers = [(4, 5), (0, 0), (5, 6)], []
    for begin, end in spans:
        starts, ends = (np.eye(12, dtype=np.float32)[None, at] * 3 for at in (begin, end))
        answers.append([[starts, ends]])
    accuracy = scored(
        squad["Squad"],
        make_card("any"),
        make_loaded(tensors((1, 12), (1, 12)), BERT),
        data,
        answers,
    )
    assert (accuracy.metric, accuracy.images) == ("squad_f1", 3)
    assert accuracy.value == pytest.approx((1 + 1 + 2 / 3) / 3)


@pytest.mark.needs(module="jiwer")
def test_speech_is_scored_by_word_errors(plugin, tmp_path):
    """Greedy CTC merges equal adjacent letters, and blanks part them.

    Two of three words are right.
    """
    speech = plugin("word_error_rate.py")
    for name in ("a.wav", "b.wav"):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setparams((1, 2, 8000, 80, "NONE", ""))
            file.writeframes(bytes(160))
    (tmp_path / "text.tsv").write_text("a.wav\taab b\nb.wav\tB\n")
    data = open_folder(tmp_path, tmp_path / "text.tsv", reader=speech["Transcripts"]())
    card = make_card("ctc", classes=4, labels=("<blank>", "a", "b", "|"))
    heard = [[1, 0, 1, 2, 3, 2], [1, 1, 1, 1, 0, 0]]
    answers = [[[np.eye(4, dtype=np.float32)[frames][None]]] for frames in heard]
    accuracy = scored(
        speech["Words"],
        card,
        make_loaded(tensors((1, 6, 4)), [TensorInfo("sound", (1, 100), "float32")]),
        data,
        answers,
    )
    assert (accuracy.metric, accuracy.better, accuracy.value) == (
        "wer",
        "lower",
        pytest.approx(1 / 3),
    )
    assert accuracy.detail == {"cer": pytest.approx(1 / 6)}


@pytest.mark.needs(module="sklearn")
def test_what_is_reconstructed_badly_is_an_anomaly(plugin, tmp_path):
    """An item of several windows, .npy or raw, is scored by their mean error.

    Of four pairs three are in order.
    """
    anomaly = plugin("anomaly.py")
    loaded = make_loaded(tensors((1, 256)), [TensorInfo("window", (1, 256), "float32")])
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.zeros((3, 128), np.float32))
    np.zeros((3, 128), np.float32).tofile(tmp_path / "3.bin")
    (tmp_path / "index.txt").write_text("0.npy 0\n1.npy 1\n2.npy 0\n3.bin 1\n")
    data = open_folder(tmp_path, tmp_path / "index.txt")
    answers = [[[np.full((1, 256), error, np.float32)]] * 2 for error in (0.1, 0.2, 0.3, 0.4)]
    accuracy = scored(anomaly["Anomaly"], make_card("autoencoder"), loaded, data, answers)
    assert (accuracy.metric, accuracy.value, accuracy.images) == ("auc", 0.75, 4)


@pytest.mark.services
def test_a_plug_in_scores_from_the_command_to_the_record(plugin, tmp_path):
    """`--task FILE.py:NAME` runs with its own reader in the sandbox of a run.

    The model predicts class 1 for everything.
    """
    plugin("glue.py")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ngood films\t1\nbad film\t0\nit\t1\n")
    model = {
        "format": "edgemeter-replay",
        "schema": 1,
        "latencies_ms": [1.0],
        "inputs": [{"name": "input_ids", "shape": [1, None], "dtype": "int64"}],
        "outputs": [
            {"name": "logits", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}
        ],
    }
    (tmp_path / "net.replay.json").write_text(json.dumps(model))
    words = (
        "--data",
        "dev.tsv",
        "--task",
        "glue.py:Glue",
        "--mode",
        "rapid",
        "--repeats",
        1,
        "--power",
        "none",
        "--format",
        "json",
        "-q",
    )
    ended = edgemeter(
        "run",
        "net.replay.json",
        *words,
        cwd=tmp_path,
        env=os.environ | {"EDGEMETER_HOME": str(tmp_path / "home")},
    )
    assert ended.returncode == 0, ended.stderr
    (run,) = json.loads(ended.stdout)["runs"]
    assert (run["model"]["task"], run["dataset"]["name"], run["dataset"]["images"]) == (
        "glue.py:Glue",
        "dev.tsv",
        3,
    )
    assert (run["accuracy"]["metric"], run["accuracy"]["value"]) == (
        "accuracy",
        pytest.approx(2 / 3),
    )
