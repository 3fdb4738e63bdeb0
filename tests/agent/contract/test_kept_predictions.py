"""Facts about packed predictions: they come back, fit into the record, and what is not ours is refused."""

import base64
import json
import zlib

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import kept_predictions, record
from edgemeter.agent.contract.kept_predictions import KeptPhotograph, fitted, pack, predictions_of, unpack
from edgemeter.agent.contract.record_accuracy import PackedPredictions
from tests.fixtures.kept_factory import kept_answers, kept_of, random_kept, thing
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row


def packed(document):
    """Return the text of a document of ours, whatever it holds."""
    return base64.b85encode(zlib.compress(json.dumps(document).encode())).decode()


def test_predictions_come_back_rounded():
    """Boxes to a tenth of a pixel, scores to a thousandth; crowds, groups, names of any letters and answers as they are."""
    fine = kept_of(
        ([thing("cat", 1.2345, ignored=True), thing("dog", 3.0, group="night")], [thing("fox", 5.6789, side=7.77, score=0.98765)])
    )
    named = msgspec.structs.replace(fine.photographs[0], name="Eule \u00fc\U0001f989.png", group="wood")
    (photo,) = unpack(pack(msgspec.structs.replace(fine, photographs=(named,)))).photographs
    assert (photo.name, photo.group, photo.width, photo.height) == (named.name, "wood", 640, 480)
    assert photo.truth == (thing("cat", 1.2, ignored=True), thing("dog", 3.0, group="night"))
    assert photo.found == (thing("fox", 5.7, side=7.8, score=0.988),)
    answers = kept_answers(("cat", "dog", 0.75), ("owl", "owl", 0.5))
    assert unpack(pack(answers)) == answers


def test_what_is_not_ours_is_refused():
    """Not base85, not zlib, cut off, not JSON, wrong labels, NaN, boxes of no photograph, doubled names, a bomb: one line each."""
    sound = {"labels": ["cat"], "least_score": 0.05}
    photo = {"name": "a.png", "width": 9, "height": 9}
    cut_off = base64.b85encode(base64.b85decode(pack(random_kept(0)))[:-9]).decode()
    for text in (
        "",
        "no\u00e9",
        base64.b85encode(b"plain").decode(),
        cut_off,
        packed([1]),
        packed({**sound, "photographs": [{**photo, "truth": [[1, 0, 0, 1, 1]]}]}),
        packed({**sound, "photographs": [{**photo, "found": [[0, 0, 0, 1, 1, 0.5], [0, 0, 0, 1, 1, 0.6]]}]}),
        packed({**sound, "photographs": [{**photo, "found": [[0, float("nan"), 0, 1, 1, 0.5]]}]}),
        packed({**sound, "photographs": [photo, photo]}),
        packed({**sound, "photographs": [photo], "answers": [{"name": "a.png", "truth": 0, "best": []}]}),
        packed({**sound, "answers": [{"name": "a.png", "truth": 0, "best": [[1, 0.5]]}]}),
        base64.b85encode(zlib.compress(b" " * (64 << 20))).decode(),
        base64.b85encode(zlib.compress(b'{"labels":' + b"[" * 100_000)).decode(),
    ):
        with table_row(text[:60]), pytest.raises(ConfigError, match="the kept predictions are damaged"):
            unpack(text)


def test_what_is_too_large_loses_low_scores_first(monkeypatch):
    """No photograph, and no object of a higher score; the record says from which score on."""
    predictions = random_kept(1, photographs=80)
    all_of_them = unpack(pack(predictions))
    monkeypatch.setattr(kept_predictions, "LARGEST", int(len(pack(predictions)) * 0.95))
    fewer = fitted(predictions)
    assert (fewer.items, fewer.least_score, len(fewer.data) <= kept_predictions.LARGEST) == (80, 0.2, True)
    expected = [tuple(item for item in photo.found if item.score >= 0.2) for photo in all_of_them.photographs]
    assert [photo.found for photo in unpack(fewer.data).photographs] == expected
    assert [photo.truth for photo in unpack(fewer.data).photographs] == [photo.truth for photo in all_of_them.photographs]
    assert unpack(fewer.data).least_score == 0.2


def test_what_is_much_too_large_loses_photographs_the_same_in_every_run(monkeypatch):
    """Half of them or a quarter, by their names: what one run keeps of them is among what another keeps."""
    many = random_kept(3, photographs=400)
    without_found = msgspec.structs.replace(many, photographs=tuple(msgspec.structs.replace(photo, found=()) for photo in many.photographs))
    monkeypatch.setattr(kept_predictions, "LARGEST", len(pack(many)) // 3)
    sides = [fitted(predictions) for predictions in (many, without_found)]
    names = [[photo.name for photo in unpack(side.data).photographs] for side in sides]
    assert [len(of_side) for of_side in names] == [side.items for side in sides] == [100, 200]
    assert set(names[0]) < set(names[1])
    # In their order still.
    assert names[0] == sorted(names[0], key=[photo.name for photo in many.photographs].index)


def test_what_never_fits_is_no_endless_search():
    """Labels alone that are larger than a record may be."""
    labels = tuple(f"{number * 0x9E3779B97F4A7C15 % 2**64:x}" for number in range(40_000))
    huge = msgspec.structs.replace(kept_answers(("cat", "dog", 0.5)), labels=labels)
    assert fitted(huge) is None


def test_a_run_without_predictions_names_the_option_that_keeps_them():
    """In the words of the run where it knows why there are none."""
    with pytest.raises(ConfigError, match="keeps no predictions: measure it with --keep-predictions"):
        predictions_of(make_record())
    with pytest.raises(ConfigError, match="the task depth keeps no predictions"):
        predictions_of(make_record(predictions_reason="the task depth keeps no predictions"))
    predictions = kept_of(([], [thing("cat", 0.0, score=0.5)]))
    run = make_record(predictions=PackedPredictions(items=1, least_score=0.05, data=pack(predictions)))
    assert predictions_of(record.decode(record.encode(run))) == predictions


def test_an_empty_photograph_stays_one():
    """Nothing annotated and nothing found is an answer too."""
    assert unpack(pack(kept_of(([], [])))).photographs == (KeptPhotograph(name="0.png", width=640, height=480),)


def test_a_photograph_that_could_not_be_read_back_is_not_kept():
    """Of crowds of thousands, the other photographs stay; where there is no other, nothing is kept."""
    crowd = kept_of(([thing("cat", float(number % 640)) for number in range(4001)], []), ([thing("cat", 1.0)], []))
    kept_part = fitted(crowd)
    assert kept_part.items == 1
    assert [photo.name for photo in unpack(kept_part.data).photographs] == [crowd.photographs[1].name]
    assert fitted(msgspec.structs.replace(crowd, photographs=crowd.photographs[:1])) is None
