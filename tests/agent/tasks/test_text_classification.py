"""Text classification: GLUE's metrics, against their definitions written out again, and classes by name."""

import math

import numpy as np
import pytest

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import CardOutput, read_card
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.text_data import place_model
from tests.fixtures.vision_factory import make_loaded, tensors

pytest.importorskip("tokenizers", reason="needs the extra `text`")
COLA = "src\t{}\t\ttea is good\n"
MRPC = "{}\t1\t2\ttea\tcup\n"
MRPC_HEADING = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def scored(folder, text, logits, **output):
    """Return the accuracy of these scores on the texts of a table."""
    path = folder / "dev.tsv"
    path.write_text(text, encoding="utf-8")
    task = make_task(folder, open_folder(path), len(logits[0]), **output)
    for index, row in enumerate(logits):
        task.prepare(index)
        task.predict(index, [[np.array([row], np.float32)]])
    return task.score()


def make_task(folder, data, scores=2, **output):
    """Return the task of a model with so many classes."""
    model = place_model(folder, "text-classification.onnx", 16)
    card = read_card(model.with_name(f"{model.name}.toml")).beside(model)
    card = type(card)(**{**{name: getattr(card, name) for name in card.__struct_fields__}, "output": CardOutput(**output)})
    names = ("input_ids", "attention_mask", "token_type_ids")
    return tasks.create(card, make_loaded(tensors((1, scores)), tensors(*[(1, 16)] * 3, names=names, dtype="int64")), data)


@pytest.fixture
def predictions():
    """Return the right classes of 120 texts and what a model predicts, right three times in four."""
    draw = np.random.default_rng(5)
    truth = draw.integers(0, 2, 120)
    return truth, np.where(draw.random(120) < 0.75, truth, 1 - truth)


def test_cola_is_scored_by_the_correlation_of_both(tmp_path, predictions):
    """Matthews' correlation of two classes is Pearson's of zeros and ones."""
    truth, predicted = predictions
    score = scored(tmp_path, "".join(COLA.format(label) for label in truth), np.eye(2)[predicted])
    assert (score.metric, score.value) == ("matthews", pytest.approx(np.corrcoef(truth, predicted)[0, 1], abs=1e-12))
    assert score.detail == {"accuracy": pytest.approx(np.mean(truth == predicted))}
    assert score.low < score.value < score.high
    assert len(score.without_parts) == 20


QQP = "{}\t1\t2\tHow are you ?\tAre you well ?\t{}\n"
QQP_HEADING = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
STSB = "{}\tnews\tf\t2012\t1\tnone\tnone\ttea\tcup\t{}\n"
STSB_HEADING = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"


def test_question_pairs_are_scored_by_f1_and_accuracy(tmp_path, predictions):
    """QQP's columns: F1 of duplicates as twice precision times recall over their sum, and accuracy beside it."""
    truth, predicted = predictions
    score = scored(tmp_path, QQP_HEADING + "".join(QQP.format(k, label) for k, label in enumerate(truth)), np.eye(2)[predicted])
    precision, recall = truth[predicted == 1].mean(), predicted[truth == 1].mean()
    assert (score.metric, score.value) == ("f1", pytest.approx(2 * precision * recall / (precision + recall), abs=1e-12))
    assert score.detail == {"accuracy": pytest.approx(np.mean(truth == predicted))}


def ranks(values):
    """Return the rank of each value by counting those below it, and half of its equals."""
    return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])


def test_similarity_of_sentences_is_scored_by_both_correlations(tmp_path):
    """STS-B: Pearson's correlation by numpy, Spearman's as that of ranks counted one by one, ties included."""
    draw = np.random.default_rng(6)
    truth = np.round(draw.uniform(0, 5, 90), 1)
    predicted = np.round(truth + draw.normal(0, 1.5, 90), 1).astype(np.float32)
    text = STSB_HEADING + "".join(STSB.format(k, value) for k, value in enumerate(truth))
    score = scored(tmp_path, text, predicted[:, None])
    assert (score.metric, score.better) == ("pearson", "higher")
    assert score.value == pytest.approx(np.corrcoef(truth, predicted)[0, 1], abs=1e-12)
    assert score.detail == {"spearman": pytest.approx(np.corrcoef(ranks(truth), ranks(predicted))[0, 1], abs=1e-12)}
    assert -1 < score.low < score.value < score.high < 1


def test_similarities_that_order_nothing_are_worth_0_and_need_one_number_each(tmp_path):
    """A constant or a NaN correlates with nothing; two outputs are classes; a score that is a word is named with its line."""
    text = STSB_HEADING + "".join(STSB.format(k, k % 5) for k in range(30))
    for logits in (np.ones((30, 1)), np.where(np.arange(30) == 7, np.nan, 1.0)[:, None]):
        score = scored(tmp_path, text, logits)
        assert (score.value, score.detail["spearman"]) == (0, 0)
    with pytest.raises(ConfigError, match=r"gives 2 values, and .* holds a number for each text"):
        scored(tmp_path, text, np.ones((30, 2)))
    with pytest.raises(ConfigError, match="line 2 has the score 'high', which is no number"):
        scored(tmp_path, STSB_HEADING + STSB.format(0, "high"), np.ones((1, 1)))


def test_a_correlation_below_0_has_bounds_below_0(tmp_path, predictions):
    """Its lowest value is -1, not 0; with one class only it is 0, as scikit-learn has it."""
    truth, predicted = predictions
    worse = scored(tmp_path, "".join(COLA.format(label) for label in truth), np.eye(2)[1 - predicted])
    assert worse.value == pytest.approx(-np.corrcoef(truth, predicted)[0, 1])
    assert -1 <= worse.low < worse.value < worse.high < 0
    assert scored(tmp_path, COLA.format(0) + COLA.format(1), np.eye(2)[[1, 1]]).value == 0


def test_mrpc_is_scored_by_f1_of_paraphrases(tmp_path, predictions):
    """2 P R / (P + R) of class 1, with accuracy beside it as GLUE has it."""
    truth, predicted = predictions
    score = scored(tmp_path, MRPC_HEADING + "".join(MRPC.format(label) for label in truth), np.eye(2)[predicted])
    precision, recall = np.mean(truth[predicted == 1] == 1), np.mean(predicted[truth == 1] == 1)
    assert (score.metric, score.value) == ("f1", pytest.approx(2 * precision * recall / (precision + recall), abs=1e-12))
    assert score.detail == {"accuracy": pytest.approx(np.mean(truth == predicted))}


def test_classes_are_named_by_the_card_s_labels(tmp_path):
    """MNLI's classes in the model's own order: entailment first here, as many models have it."""
    text = "sentence1\tsentence2\tlabel\na\tb\tneutral\na\tb\tentailment\na\tb\tcontradiction\n"
    score = scored(tmp_path, text, np.eye(3)[[1, 0, 0]], labels=("ENTAILMENT", "neutral", "contradiction"))
    assert (score.metric, score.value, score.interval) == ("accuracy", pytest.approx(2 / 3), "95%, Wilson; texts taken as independent")


@pytest.mark.parametrize(
    ("labels", "match"), [((), "has the class 'entailment', the labels"), (("yes", "no", "neutral"), "write output.labels in its card")]
)
def test_classes_without_a_name_in_the_card_are_refused(tmp_path, labels, match):
    """The order of classes is never guessed: the accuracy would be that of another model."""
    with pytest.raises(ConfigError, match=match):
        scored(tmp_path, "text\tlabel\na\tentailment\nb\tneutral\n", np.eye(3)[[1, 0]], labels=labels)


def test_a_class_that_the_model_does_not_have_is_refused(tmp_path):
    """Classes are counted from 0."""
    with pytest.raises(ConfigError, match="has class 2, model 'tiny' has 2 classes"):
        scored(tmp_path, "text\tlabel\na\t2\n", np.eye(2), classes=2)


def test_texts_that_were_cut_are_counted(tmp_path):
    """An accuracy over texts that the model did not see whole says so."""
    score = scored(tmp_path, f"text\tlabel\na\t1\n{'tea ' * 30}\t1\n", np.eye(2)[[1, 1]])
    assert score.warnings == ("1 of 2 texts are longer than 16 tokens and were cut",)
    assert math.isclose(score.value, 1)


def test_photographs_are_no_texts(tmp_path):
    """A data set of another task is refused."""
    (tmp_path / "dev.json").write_text(
        '{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "x", "question": "q", "answers": []}]}]}]}'
    )
    with pytest.raises(ConfigError, match=r"has other ground truth: give a table of texts \(.tsv\)"):
        make_task(tmp_path, open_folder(tmp_path / "dev.json"))
