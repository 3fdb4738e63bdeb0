"""Facts about speech recognition: errors over the corpus, as jiwer counts them; texts normalised as Whisper does; both families."""

import random

import numpy as np
import pytest

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks.speech_recognition import Edits, edits, normalised
from tests.fixtures.audio_factory import make_audio_card, tone, write_recording
from tests.fixtures.vision_factory import make_loaded, tensors

LABELS = ("<pad>", "|", "a", "b", "c")
SOUND = TensorInfo("sound", (1, None), "float32")


def pairs(count=300):
    """Return made-up pairs of sentences of few words, so that many alignments are equally good."""
    draw = random.Random(7)  # noqa: S311
    return [tuple([draw.choice("abcd") for _ in range(draw.randint(first, 12))] for first in (1, 0)) for _ in range(count)]


def test_errors_are_counted_as_jiwer_counts_them():
    """Of 300 pairs the sum of edits that jiwer 4.0.0 finds, and what any alignment must satisfy."""
    counted = [edits(*pair) for pair in pairs()]
    assert sum(counts.errors for counts in counted) == 1836
    for (reference, heard), counts in zip(pairs(), counted, strict=True):
        assert len(heard) == len(reference) - counts.deletions + counts.insertions
    assert edits(["the", "cat", "sat"], ["the", "hat", "sat", "down"]) == Edits(1, 0, 1, 3)
    assert (edits([], ["a"]), edits(["a"], [])) == (Edits(0, 0, 1, 0), Edits(0, 1, 0, 1))


def test_errors_equal_jiwers_pair_by_pair():
    """Where it is installed, all 300 of them."""
    jiwer = pytest.importorskip("jiwer", reason="needs jiwer, which no extra installs (CI does)")
    for reference, heard in pairs():
        processed = jiwer.process_words(" ".join(reference), " ".join(heard))
        assert edits(reference, heard).errors == processed.substitutions + processed.deletions + processed.insertions


def test_texts_are_normalised_as_whispers_basic_rule_does():
    """What whisper-normalizer 0.1.15's BasicTextNormalizer gives, without the spaces at its ends."""
    for text, plain in [
        ("Yes, it's TRUE.", "yes it s true"),
        ("[noise] hm (laughs) ok", "hm ok"),
        ("<unk> Ça va? — Élan & Co. №5", "ça va élan co no5"),
        ("don't  stop…", "don t stop"),
        ("\ufb01ne \uff11\uff12 £3.50", "fine 12 3 50"),
        ("Straße STRASSE", "straße strasse"),
        ("", ""),
    ]:
        assert normalised(text) == plain, f"{text!r}"


def ctc(*labels):
    """Return scores in which these labels are best, frame by frame."""
    scores = np.zeros((1, len(labels), len(LABELS)), np.float32)
    scores[0, np.arange(len(labels)), [LABELS.index(label) for label in labels]] = 1
    return [[scores]]


def make_task(folder, rows, heading="file\ttext\tspeaker"):
    """Return the task of a CTC model over recordings with these texts."""
    for row in rows:
        write_recording(folder / row.split("\t")[0], tone(440))
    (folder / "spoken.tsv").write_text("\n".join([heading, *rows]) + "\n")
    card = make_audio_card("speech-recognition", "ctc", labels=LABELS)
    card = type(card)(**{**{name: getattr(card, name) for name in card.__struct_fields__}, "input": type(card.input)(sample_rate_hz=16000)})
    return tasks.create(card, make_loaded(tensors((1, None, 5)), [SOUND]), open_folder(folder, folder / "spoken.tsv"))


def test_the_rate_is_that_of_the_corpus_not_the_mean_of_recordings(tmp_path):
    """One wrong of one word and none of nine: 0.1, not 0.5; joined repetitions, blanks and spaces make words."""
    task = make_task(tmp_path, ["a.wav\tab\tann", "b.wav\tA, a a a a a a a a!\tbob"])
    assert [call["sound"].shape for call in task.prepare(0)] == [(1, 3200)]
    task.predict(0, ctc("b", "b", "<pad>", "a"))
    task.predict(1, ctc(*("a", "|") * 9))
    accuracy = task.score()
    assert (accuracy.metric, accuracy.value, accuracy.images, accuracy.better, accuracy.normalisation) == (
        "wer",
        0.1,
        2,
        "lower",
        "whisper-basic",
    )
    assert (accuracy.detail["substitutions"], accuracy.detail["deletions"], accuracy.detail["insertions"]) == (0.1, 0.0, 0.0)
    task.predict(1, ctc("a", "a", "<pad>", "a", "|", "a"))
    assert task.score().value == pytest.approx((1 + 8) / 10)


def babbled(folder, counts, heading):
    """Return the score of a model that hears three words where one is said, of so many recordings of each name."""
    names = [name for name, count in zip(("ann", "bob", "cid", "dan", "eve"), counts, strict=False) for _ in range(count)]
    task = make_task(folder, [f"{number:02}.wav\tc\t{name}" for number, name in enumerate(names)], f"file\ttext\t{heading}")
    for index in range(len(names)):
        task.predict(index, ctc("a", "|", "b", "|", "a" if index % 2 else "c"))
    return task.score()


def test_a_model_that_babbles_has_a_rate_above_one_within_its_bounds(tmp_path):
    """Three words where one was said, in 40 recordings of two groups, each with a figure of its own."""
    accuracy = babbled(tmp_path, [30, 10], "group")
    assert accuracy.value == pytest.approx(2.5)
    assert accuracy.low < 2.5 < accuracy.high
    assert [(group.name, group.images, group.value) for group in accuracy.groups] == [("ann", 30, 2.5), ("bob", 10, None)]


def test_what_cannot_be_scored_is_refused(tmp_path):
    """Classes in place of texts, labels without a blank, another number of labels, an unknown family."""
    write_recording(tmp_path / "a.wav", tone(440))
    (tmp_path / "classes.txt.csv").write_text("a.wav,3\n")
    classes = open_folder(tmp_path, tmp_path / "classes.txt.csv")
    loaded = make_loaded(tensors((1, None, 5)), [SOUND])
    with pytest.raises(ConfigError, match="writes down speech, and the ground truth"):
        tasks.create(make_audio_card("speech-recognition", "ctc", labels=LABELS), loaded, classes)
    (tmp_path / "spoken.tsv").write_text("file\ttext\na.wav\tab\n")
    data = open_folder(tmp_path, tmp_path / "spoken.tsv")
    with pytest.raises(ConfigError, match="no label for a blank among its 2"):
        tasks.create(make_audio_card("speech-recognition", "ctc", labels=("a", "b")), loaded, data)
    with pytest.raises(ConfigError, match="family 'rnnt', speech is recognised by ctc or whisper"):
        tasks.create(make_audio_card("speech-recognition", "rnnt"), loaded, data)
    with pytest.raises(ConfigError, match=r"no tokenizer: put tokenizer\.json"):
        tasks.create(make_audio_card("speech-recognition", "whisper"), loaded, data)
    task = tasks.create(make_audio_card("speech-recognition", "ctc", labels=LABELS[:4]), loaded, data)
    with pytest.raises(ConfigError, match="scores of 5 labels, not 4"):
        task.predict(0, ctc("a"))
