"""Facts about the sentence of a comparison: every figure in the words that its interval bears."""

import random

import msgspec
import pytest

from edgemeter.agent.base import decision
from edgemeter.agent.base.accuracy_bounds import SAME, DifferenceBounds
from edgemeter.agent.base.decision import decide, decide_accuracy, difference, sentence
from tests.fixtures.rows import table_row

UNKNOWN = DifferenceBounds(None, "fewer than 20 images")
NO_ENERGY = difference("energy_gross_mj", "mJ", decide(None, None, 0.03, reason="no sensor"))
MIRRORED = {"lower": "higher", "higher": "lower"}


def of(figure, change, low, high, note=""):
    """Return the difference of a ratio with its interval."""
    return msgspec.structs.replace(difference(figure, "ms", decide(change, (low, high), 0.03)), note=note)


def accuracies(change, over_items):
    """Return the difference of two accuracies."""
    return difference("accuracy_value", "AP", decide_accuracy(change, over_items, 0.005), (0.5, 0.5 + change))


def points(change, low, high):
    """Return the difference of two accuracies, in points of 100."""
    return accuracies(change / 100, DifferenceBounds((low / 100, high / 100)))


def test_an_interval_decides_by_where_it_lies_on_the_log_scale():
    """Within the margin on both sides, on one side of no change, or neither; certain by the margin only where all of it lies beyond."""
    for low, high, outcome, is_beyond_margin in (
        (0.98, 1.02, "alike", False),
        (1 / 1.03, 1.03, "alike", False),
        (0.9705, 1.02, "not settled", False),
        (0.9, 1.01, "not settled", False),
        (1.001, 1.2, "higher", False),
        (1.031, 1.2, "higher", True),
        (0.9, 0.999, "lower", False),
        (0.9, 0.9705, "lower", True),
    ):
        with table_row(low, high):
            decided = decide(1.0, (low, high), 0.03)
            assert (decided.outcome, decided.is_beyond_margin) == (outcome, is_beyond_margin)


@pytest.mark.parametrize("scale", ["ratio", "difference"])
def test_exchanging_the_sides_exchanges_lower_and_higher_and_nothing_else(scale):
    """Ten thousand intervals, near the margin and far from it, of each scale."""
    draw = random.Random(1)  # noqa: S311 - the same intervals every time, no secret
    for _ in range(10_000):
        low, high = sorted(draw.gauss(0, draw.choice((0.01, 0.03, 0.3))) for _ in range(2))
        matters = draw.choice((0.005, 0.03, 0.5))
        if scale == "ratio":
            forward, back = (1 + low / 3, 1 + high / 3), (1 / (1 + high / 3), 1 / (1 + low / 3))
        else:
            forward, back = (low, high), (-high, -low)
        decided, exchanged = decide(None, forward, matters, scale), decide(None, back, matters, scale)
        assert exchanged.outcome == MIRRORED.get(decided.outcome, decided.outcome), (forward, matters)
        assert exchanged.is_beyond_margin == decided.is_beyond_margin, (forward, matters)


def test_without_an_interval_nothing_is_judged_but_what_every_part_of_the_images_shows():
    """Two accuracies of one value without bounds are not judged; the same in every part they are alike."""
    for over_items, outcome, reason in (
        (UNKNOWN, "not judged", "fewer than 20 images"),
        (DifferenceBounds(None), "not judged", "no bounds recorded"),
        (DifferenceBounds(None, SAME), "alike", SAME),
    ):
        with table_row(over_items):
            decided = decide_accuracy(0.0, over_items, 0.005)
            assert (decided.outcome, decided.reason) == (outcome, reason)
    assert decide(2.0, None, 0.03, reason="not enough runs").outcome == "not judged"


def test_each_figure_is_worded_as_certain_as_it_is():
    """What is not certain, or does not matter, is called that."""
    for diff, says in [
        (of("latency_p50_ms", 0.7, 0.65, 0.75), "B is 1.43 times faster (95% 1.33 to 1.54)"),
        (of("latency_p50_ms", 1.05, 1.01, 1.09), "B is 1.05 times slower (95% 1.01 to 1.09, perhaps less than the 3% that matter)"),
        (of("energy_gross_mj", 0.77, 0.74, 0.8), "B costs 23.0% less energy (95% 20.0 to 26.0%)"),
        (points(-0.6, -1.0, -0.2), "B loses 0.6 AP points (95% 0.2 to 1.0, perhaps less than the 0.5 that matter)"),
        (
            of("latency_p50_ms", 1.02, 0.9, 1.1, note="about 12 more pairs would settle it"),
            "not settled: latency (1.02 times A's, 95% 0.900 to 1.10; about 12 more pairs would settle it)",
        ),
        (NO_ENERGY, "nothing of B and A could be compared"),
    ]:
        assert sentence("B", "A", [diff]) == says, f"{says!r}"


def picked(*, energy=None, refused=None, **contenders):
    """Return the pick among A and others, each `(latency ratio, low, high, accuracy of A's 0.5)`."""
    changes = {
        name: [of("latency_p50_ms", *bounds), accuracies(accuracy - 0.5, DifferenceBounds((accuracy - 0.5, accuracy - 0.5)))]
        + ([of("energy_gross_mj", *[energy[name]] * 3)] if energy else [])
        for name, (*bounds, accuracy) in contenders.items()
    }
    return decision.pick("A", changes, 0.9, refused or {})


def test_the_pick_is_the_fastest_that_keeps_the_accuracy():
    """Half the accuracy rules out whatever the speed; where intervals overlap the more accurate one is taken, then the cheaper one."""
    fast, slow = (0.5, 0.48, 0.52), (1.3, 1.2, 1.4)
    for expected, candidates in (
        ("B", {"B": (*fast, 0.49), "C": (*slow, 0.5)}),
        ("A", {"B": (*fast, 0.25), "C": (*slow, 0.5)}),
        ("C", {"B": (*fast, 0.48), "C": (0.53, 0.51, 0.55, 0.499)}),
        ("B", {"B": (*fast, 0.498), "C": (0.53, 0.51, 0.55, 0.5)}),
        ("A", {"B": (0.97, 0.9, 1.04, 0.47)}),
    ):
        with table_row(candidates):
            assert picked(**candidates).name == expected
    assert picked(B=(*fast, 0.5), C=(0.53, 0.51, 0.55, 0.5), energy={"B": 0.9, "C": 0.6}).name == "C"
    assert picked(B=(*fast, 0.5), C=(0.53, 0.51, 0.55, 0.5)).rivals == ("C",)


def test_what_is_refused_is_not_picked_and_states_why():
    """An accuracy that is too low or unknown where the first has one, or what the caller names."""
    fast = (0.5, 0.48, 0.52)
    assert picked(B=(*fast, 0.25)).refused == {"B": "AP 0.2500 against 0.5000 keeps less than 90%"}
    assert picked(B=(*fast, 0.5), refused={"B": "invalid"}).name == "A"
    # The first one too, which the others are compared with.
    assert picked(B=(1.5, 1.4, 1.6, 0.5), refused={"A": "invalid"}).name == "B"
    assert picked(B=(*fast, 0.5), refused={"A": "invalid", "B": "invalid"}).name is None
    unknown = difference("accuracy_value", "AP", decide(None, None, 0.005, "difference", "not scored"), (0.5, None))
    assert decision.pick("A", {"B": [of("latency_p50_ms", *fast), unknown]}, 0.9, {}).refused == {
        "B": "its accuracy is unknown: not scored"
    }
    # Nobody named data: speed alone decides.
    unscored = msgspec.structs.replace(unknown, a=None)
    assert decision.pick("A", {"B": [of("latency_p50_ms", *fast), unscored]}, 0.9, {}).name == "B"


def language_model(name, value):
    """Return a ratio of TTFT or TPOT with a narrow interval; None: it does not compare."""
    if value is None:
        return difference(name, "ms", decide(None, None, 0.03, reason="one token has no TPOT"), (10.0, None), "lower")
    return of(name, value, value * 0.99, value * 1.01)


def test_without_decoding_the_pick_is_the_fastest_in_prefill_and_who_lacks_it_alone_is_out():
    """Answers of one token have no TPOT: three times as fast in prefill is no tie, and neither as fast nor slower beside one with it."""
    changes = {
        "B": [language_model("generation_ttft_p50_ms", 0.33), language_model("generation_tpot_p50_ms", None)],
        "C": [language_model("generation_ttft_p50_ms", 1.2), language_model("generation_tpot_p50_ms", None)],
    }
    assert decision.pick("A", changes, 0.9, {}).name == "B"
    choice = decision.pick(
        "A", changes | {"C": [language_model("generation_ttft_p50_ms", 1.0), language_model("generation_tpot_p50_ms", 0.8)]}, 0.9, {}
    )
    assert (choice.name, choice.refused) == ("C", {"B": "its TPOT does not compare: one token has no TPOT"})
