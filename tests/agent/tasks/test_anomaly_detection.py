"""Facts about anomaly detection: the AUC is the authors', a machine is a group, and bounds come from parts of the recordings."""

import csv
import itertools

import numpy as np
import pytest

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks.anomaly_detection import auc, partial_auc
from tests.fixtures.audio_factory import FEATURES, labels_csv, make_audio_card, tone, write_recording
from tests.fixtures.vision_factory import make_loaded, tensors

SOUND = TensorInfo("frames", (1, 16), "float32")


def test_the_auc_counts_pairs_and_ties_half():
    """As its definition does, over a few hundred draws with many equal scores."""
    draw = np.random.RandomState(0)
    for _ in range(50):
        scores, labels = draw.randint(0, 6, 30).astype(float), draw.randint(0, 2, 30)
        pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(scores[labels == 1], scores[labels == 0])]
        assert auc(scores, labels) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert auc(np.array([1.0, 2.0]), np.array([1, 1])) is None
    assert partial_auc(np.array([1.0, 2.0]), np.array([0, 0]), 0.1) is None


def test_the_partial_auc_is_scikit_learns():
    """`roc_auc_score(y, s, max_fpr=...)` of scikit-learn's documentation and of a draw with ties (1.7.2): 0.75 scores, by hand."""
    scores, labels = np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])
    assert auc(scores, labels) == 0.75
    # Up to 0.5 the curve is 0.5 high: area 0.25, of at least 0.125 and at most 0.5.
    assert partial_auc(scores, labels, 0.5) == pytest.approx(0.5 * (1 + (0.25 - 0.125) / (0.5 - 0.125)), abs=1e-12)
    assert partial_auc(labels.astype(float), labels, 0.1) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.realdata
@pytest.mark.parametrize("machine", ["01", "02"])
def test_auc_and_partial_auc_are_those_that_the_authors_publish(realdata, machine):
    """Of ToyCar, to 1e-12: 0.88985 and 0.75205 of machine 1, 0.91352 and 0.82460 of machine 2."""
    folder = realdata / "mlperf_tiny" / "anomaly_scores"
    rows = list(csv.reader((folder / f"anomaly_score_ToyCar_id_{machine}.csv").read_text().splitlines()))
    scores, labels = np.array([float(row[1]) for row in rows]), np.array([int(row[0].startswith("anomaly")) for row in rows])
    (published,) = [row for row in csv.reader((folder / "result_01_02.csv").read_text().splitlines()) if row[0] == machine]
    assert auc(scores, labels) == pytest.approx(float(published[1]), abs=1e-12)
    assert partial_auc(scores, labels, 0.1) == pytest.approx(float(published[2]), abs=1e-12)


def scored(folder, count, reconstruct):
    """Return the accuracy of so many recordings, half of them louder, as an autoencoder reconstructs them."""
    rows = []
    for number in range(count):
        kind = "anomaly" if number % 2 else "normal"
        name = f"{kind}_id_{number % 4 // 2 + 1:02}_{number:08}.wav"
        write_recording(folder / name, tone(500 + 10 * number, loudness=0.1 + 0.4 * (number % 2)))
        rows.append(f"{name},2,{number % 2},2560,512")
    data = open_folder(folder, labels_csv(folder / "y_labels.csv", rows))
    task = tasks.create(
        make_audio_card("anomaly-detection", "autoencoder", FEATURES | {"frames": 2}), make_loaded(tensors((1, 16)), [SOUND]), data
    )
    for index in range(count):
        task.predict(index, [[reconstruct(call["frames"])] for call in task.prepare(index)])
    return task.score()


def test_a_model_that_reconstructs_what_is_normal_finds_the_rest(tmp_path):
    """One that can draw what is quiet alone has an AUC of 1, in each machine too; machines are groups."""
    accuracy = scored(tmp_path, 80, lambda frames: np.minimum(frames, 3.0))
    assert (accuracy.metric, accuracy.value, accuracy.images, accuracy.better) == ("auc", 1.0, 80, "higher")
    assert (accuracy.low, accuracy.high, len(accuracy.without_parts)) == (None, None, 20)
    assert [(group.name, group.value, group.images) for group in accuracy.groups] == [("id_01", 1.0, 40), ("id_02", 1.0, 40)]


def test_a_model_that_reconstructs_everything_is_chance(tmp_path):
    """All scores are 0: every pair is a tie, and the AUC 0.5 says so."""
    accuracy = scored(tmp_path, 80, lambda frames: frames.copy())
    assert (accuracy.value, accuracy.detail["partial_auc"]) == (0.5, 0.5)


def test_what_reconstructs_nothing_of_its_size_is_refused(tmp_path):
    """A classifier in its place, by name."""
    with pytest.raises(ConfigError, match="'tested' gives 3 values for 16"):
        scored(tmp_path, 2, lambda _: np.zeros((1, 3), np.float32))


def test_classes_beyond_normal_and_anomaly_are_refused(tmp_path):
    """Ground truth knows the classes normal and anomaly only."""
    write_recording(tmp_path / "a.wav", tone(440))
    data = open_folder(tmp_path, labels_csv(tmp_path / "y_labels.csv", ["a.wav,12,7"]))
    with pytest.raises(ConfigError, match="finds anomalies, and the ground truth"):
        tasks.create(make_audio_card("anomaly-detection", "autoencoder", FEATURES), make_loaded(tensors((1, 16)), [SOUND]), data)
