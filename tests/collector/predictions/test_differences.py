"""Facts about the differences of two runs' predictions: cases by hand, sums that must add up, and runs that cannot be compared."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.kept_predictions import pack, unpack
from edgemeter.collector.predictions.differences import KINDS, SAME, WORSE, differences
from edgemeter.collector.predictions.quality import confusion
from tests.fixtures.kept_factory import LABELS, kept_answers, kept_of, random_kept, thing
from tests.fixtures.rows import table_row

# Annotated, found by the reference, found by the device, and what the difference is; each in a photograph of its own.
CASES = [
    ([thing("cat", 0)], [thing("cat", 0, score=0.9)], [thing("cat", 1, score=0.5)], "both"),
    ([thing("cat", 0)], [thing("cat", 0, score=0.9)], [thing("cat", 9, score=0.5)], "moved"),
    ([thing("cat", 0)], [thing("cat", 0, score=0.9)], [thing("dog", 1, score=0.5)], "other-class"),
    ([thing("cat", 0)], [thing("cat", 0, score=0.9)], [], "missed"),
    ([thing("cat", 0)], [thing("cat", 0, score=0.9)], [thing("cat", 0, score=0.2)], "missed"),
    ([thing("cat", 0)], [], [thing("cat", 0, score=0.9)], "gained"),
    ([thing("cat", 0)], [thing("fox", 0, score=0.9)], [thing("cat", 0, score=0.9)], "gained"),
    ([thing("cat", 0)], [], [thing("fox", 0, score=0.9)], "neither"),
    ([thing("cat", 0)], [], [], "neither"),
    ([], [thing("owl", 0, score=0.6)], [thing("owl", 5, score=0.3)], "false-both"),
    ([], [], [thing("owl", 0, score=0.3)], "false"),
    ([], [thing("owl", 0, score=0.3)], [thing("owl", 0, score=0.2)], "false-gone"),
]


def test_each_kind_of_difference_is_named():
    """One object a photograph, with the marks of every side that has it."""
    for truth, of_reference, of_device, kind in CASES:
        with table_row(kind, of_reference, of_device):
            compared = differences(kept_of((truth, of_reference)), kept_of((truth, of_device)), 0.25)
            (photo,) = compared.photographs
            assert compared.counts == {kind: 1}
            assert (photo.name, photo.width, photo.height) == ("0.png", 640, 480)
            assert (photo.worse, photo.differing) == (kind in WORSE, kind not in SAME)
            sides = [("truth", truth), ("reference", of_reference), ("device", of_device)]
            expected = [
                (0, side, kind, LABELS[item.label], item.score, (item.x, item.y, item.width, item.height))
                for side, items in sides for item in items if item.score is None or item.score >= 0.25
            ]  # fmt: skip
            assert [(mark.thing, mark.side, mark.kind, mark.label, mark.score, mark.box) for mark in photo.marks] == expected
    assert {kind for *_, kind in CASES} == set(KINDS)


def test_what_differs_by_class_only_in_an_empty_place_is_two_objects():
    """The reference's false object is gone, and the device has another."""
    compared = differences(kept_of(([], [thing("owl", 0, score=0.6)])), kept_of(([], [thing("fox", 0, score=0.6)])))
    assert compared.counts == {"false": 1, "false-gone": 1}
    assert compared.by_label == {"owl": {"false-gone": 1}, "fox": {"false": 1}}


def test_a_missed_object_may_be_there_with_a_lower_score():
    """It is missed all the same, and counted."""
    truth = [thing("cat", 0), thing("dog", 100)]
    reference = kept_of((truth, [thing("cat", 0, score=0.9), thing("dog", 100, score=0.9)]))
    compared = differences(reference, kept_of((truth, [thing("cat", 0, score=0.2)])), 0.25)
    assert (compared.counts, compared.lowered) == ({"missed": 2}, 1)


def test_crowds_are_no_objects():
    """Neither missed, nor is it false what lies on them."""
    truth = [thing("cat", 0, side=300.0, ignored=True)]
    assert differences(kept_of((truth, [])), kept_of((truth, [thing("cat", 5, score=0.9)]))).counts == {}


def test_counts_add_up_to_the_two_confusion_matrices():
    """Of random detectors: what each finds rightly, falsely and misses, and the parts by size, label and photograph."""
    for seed in range(3):
        with table_row(seed):
            reference, device = random_kept(seed), random_kept(seed + 50, blur_px=9.0)
            compared = differences(reference, device, 0.3)
            counts = Counter(compared.counts)
            matrices = [np.array(confusion(predictions, 0.3).counts) for predictions in (reference, device)]
            right, right_of_device = (np.trace(matrix[:-1, :-1]) for matrix in matrices)
            assert counts["both"] + counts["moved"] + counts["missed"] + counts["other-class"] == right
            assert counts["both"] + counts["moved"] + counts["gained"] == right_of_device
            assert counts["false-both"] + counts["false-gone"] == matrices[0][-1].sum()
            assert counts["false-both"] + counts["false"] == matrices[1][-1].sum()
            assert sum(counts[kind] for kind in list(KINDS)[:6]) == matrices[0][:-1].sum()
            for parts in (compared.by_size, compared.by_label):
                assert sum(map(Counter, parts.values()), Counter()) == counts
            things = Counter(kind for photo in compared.photographs for kind in {mark.thing: mark.kind for mark in photo.marks}.values())
            assert things == counts
            assert sum(photo.worse for photo in compared.photographs) == sum(counts[kind] for kind in WORSE)
            order = [(photo.worse, photo.differing) for photo in compared.photographs]
            assert order == sorted(order, reverse=True)
            assert min(counts.values()) > 0


def test_a_run_does_not_differ_from_itself():
    """Nor from itself with its photographs and annotations in another order."""
    reference = random_kept(4)
    turned = msgspec.structs.replace(
        reference,
        photographs=tuple(msgspec.structs.replace(photo, truth=photo.truth[::-1]) for photo in reference.photographs[::-1]),
    )
    for device in (reference, turned):
        compared = differences(reference, device)
        assert set(compared.counts) <= {"both", "neither", "false-both"}
        assert (compared.worst(10), compared.lowered, compared.note) == ((), 0, None)


def test_sizes_are_cocos_and_groups_those_of_the_annotations():
    """Below 32 x 32 small, from 96 x 96 large; an object without a group of its own has that of its photograph."""
    truth = [
        thing("cat", 0, side=31.9, group="night"),
        thing("cat", 100, side=32.0),
        thing("cat", 200, side=95.9),
        thing("cat", 350, side=96.0),
    ]
    photo = msgspec.structs.replace(kept_of((truth, [])).photographs[0], group="wood")
    predictions = msgspec.structs.replace(kept_of(), photographs=(photo,))
    compared = differences(predictions, predictions)
    assert compared.by_size == {"small": {"neither": 1}, "medium": {"neither": 2}, "large": {"neither": 1}}
    assert compared.by_group == {"night": {"neither": 1}, "wood": {"neither": 3}}


def test_the_worst_photographs_come_first():
    """By what the device does worse, then by all that differs; a photograph in which nothing differs is none of them."""
    truth = [thing("cat", 0), thing("cat", 100)]
    both, first = [thing("cat", 0, score=0.9), thing("cat", 100, score=0.9)], [thing("cat", 0, score=0.9)]
    reference, device = (
        kept_of((truth, both), (truth, both), (truth, first), (truth, both)),
        kept_of((truth, both), (truth, first), (truth, both), (truth, [])),
    )
    compared = differences(reference, device)
    assert [photo.name for photo in compared.worst(10)] == ["3.png", "1.png", "2.png"]
    assert [photo.name for photo in compared.worst(1)] == ["3.png"]
    assert [photo.worse for photo in compared.photographs] == [2, 1, 0, 0]


def test_runs_of_other_data_are_refused_with_what_differs():
    """Other photographs, annotations, sizes, labels or tasks."""
    reference = kept_of(([thing("cat", 0)], []), ([], []))
    photo = reference.photographs[0]
    changed = [
        (
            msgspec.structs.replace(photo, name="x.png"),
            r"1 photograph of the reference only, such as '0.png'; 1 photograph of the device only, such as 'x.png'",
        ),
        (msgspec.structs.replace(photo, truth=(thing("cat", 1),)), "the annotations of '0.png' differ"),
        (msgspec.structs.replace(photo, width=641), "the annotations of '0.png' differ"),
    ]
    for other, message in changed:
        with table_row(message), pytest.raises(ConfigError, match=message):
            differences(reference, msgspec.structs.replace(reference, photographs=(other, reference.photographs[1])))
    with pytest.raises(ConfigError, match="different labels, number 1 is 'dog' and 'wolf'"):
        differences(reference, msgspec.structs.replace(reference, labels=("cat", "wolf", "owl", "fox")))
    with pytest.raises(ConfigError, match="different labels, 4 and 3"):
        differences(reference, msgspec.structs.replace(reference, labels=LABELS[:3]))
    with pytest.raises(ConfigError, match="one of the runs is of a detector"):
        differences(reference, kept_answers(("cat", "cat", 0.5)))


def test_a_run_that_keeps_fewer_photographs_is_compared_on_those():
    """As records do that have no room for more; it is remarked, and low scores that one side lacks count on neither."""
    many = random_kept(6)
    few = msgspec.structs.replace(many, photographs=many.photographs[::2], least_score=0.4)
    compared = differences(many, few, 0.25)
    assert (len(compared.photographs), compared.score) == (30, 0.4)
    assert compared.note == "of 60 photographs, the 30 that both runs keep"


def test_classifiers_differ_item_by_item():
    """Right on both sides, on one, on none; the marks have no box."""
    reference = kept_answers(("cat", "cat", 0.9), ("cat", "cat", 0.8), ("dog", "owl", 0.7), ("dog", "owl", 0.6))
    device = kept_answers(("cat", "cat", 0.5), ("cat", "fox", 0.4), ("dog", "dog", 0.3), ("dog", "fox", 0.2))
    compared = differences(reference, device)
    assert compared.counts == {"both": 1, "other-class": 1, "gained": 1, "neither": 1}
    assert (compared.by_size, compared.by_label["cat"]) == ({}, {"both": 1, "other-class": 1})
    worst = compared.photographs[0]
    assert [(mark.side, mark.label, mark.score, mark.box) for mark in worst.marks] == [
        ("truth", "cat", None, None),
        ("reference", "cat", 0.8, None),
        ("device", "fox", 0.4, None),
    ]


def test_what_was_packed_differs_as_before():
    """Rounding moves nothing: the least box is ten times larger than what is lost."""
    reference, device = random_kept(7), random_kept(8)
    packed = differences(unpack(pack(reference)), unpack(pack(device)), 0.25)
    assert packed.counts == differences(reference, device, 0.25).counts


@pytest.mark.slow
def test_five_thousand_photographs_are_compared():
    """Those of COCO's validation set; every annotated object is in one of the counts."""
    reference, device = random_kept(1, photographs=5000), random_kept(2, photographs=5000)
    compared = differences(reference, device)
    objects = sum(not item.ignored for photo in reference.photographs for item in photo.truth)
    assert objects > 15_000
    assert sum(compared.counts.get(kind, 0) for kind in list(KINDS)[:6]) == objects
