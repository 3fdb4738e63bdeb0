"""Facts about `edgemeter.agent.engine.output_check`.

They show which outputs are the same, and how answers that are asked again may differ.
"""

from collections import Counter

import numpy as np
import pytest

from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.engine.output_check import compare_answers, compare_outputs, summarise_check
from edgemeter.agent.generators import Generated, GeneratorAbilities
from tests.fixtures.played_servers import PlayedTextServer, busy, measure_text
from tests.fixtures.played_time import play_time
from tests.fixtures.rows import table_row

RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(1, 6, 40)).astype(np.float32)
NAN = np.array([1.0, np.nan, 3.0], np.float32)


def changed(array, index, value):
    copy = array.copy()
    copy[index] = value
    return copy


def test_equal_outputs_are_identical_even_where_they_are_no_numbers():
    """The same NaN in the same place is the same answer.

    Whether NaN may be there is another question.
    """
    for arrays in (
        [FLOATS],
        [NAN],
        [np.array([np.inf, -np.inf])],
        [],
        [np.zeros((1, 0, 6), np.float32)],
        [np.array(["a", "b"])],
    ):
        assert compare_outputs(arrays, [array.copy() for array in arrays]) == "same"


def test_what_cannot_be_subtracted_differs():
    """Outputs differ by shape, number of tensors, NaN, infinity, or values in place of zeros."""
    for outputs, other in [
        ([np.zeros((1, 3, 6))], [np.zeros((1, 4, 6))]),
        ([FLOATS], [FLOATS, FLOATS]),
        ([NAN], [np.array([1.0, 2.0, 3.0], np.float32)]),
        ([np.array([1.0, 2.0])], [np.array([1.0, np.inf])]),
        ([np.zeros(3)], [np.array([0.0, 1e-9, 0.0])]),
    ]:
        assert compare_outputs(outputs, other) == "differing", f"{outputs!r}, {other!r}"


def test_rounding_is_distinguished_from_a_changed_value():
    """Another order of summing moves the sixth digit of floats.

    Integers have no noise, and a channel is judged by its own values.
    """
    noisy = (FLOATS * (1 + 1e-6 * RNG.normal(size=FLOATS.shape))).astype(np.float32)
    integers = np.arange(100, dtype=np.int8)
    # A YOLO's one tensor: its boxes reach 640, by which a score that is wrong by 0.5 would be
    # rounding.
    tensor = np.zeros((1, 84, 840), np.float32)
    tensor[0, :4] = RNG.uniform(0, 640, (4, 840))
    tensor[0, 4:] = RNG.uniform(0, 1, (80, 840))
    # The scores of a class that the photograph does not show are noise.
    tensor[0, 20] = 1e-7
    for name, outputs, other, is_same in [
        ("float kernels", FLOATS, noisy, True),
        ("one value of 240", FLOATS, changed(FLOATS, (0, 3, 7), FLOATS[0, 3, 7] + 0.1), False),
        ("one step of an integer", integers, changed(integers, 50, 51), False),
        (
            "a score beside boxes in pixels",
            tensor,
            changed(tensor, (0, 10, 5), tensor[0, 10, 5] + 0.5),
            False,
        ),
        ("a score of a class that is not there", tensor, changed(tensor, (0, 20, 5), 3e-7), True),
    ]:
        assert (compare_outputs([outputs], [other]) == "same") == is_same, name


def test_outputs_of_another_order_are_the_same_when_the_predictions_are():
    """Suppression inside a model may swap two boxes.

    Without a look at the answers that is a difference.
    """
    outputs, swapped = [np.array([[1.0, 2.0]])], [np.array([[2.0, 1.0]])]
    check = summarise_check(
        [
            compare_outputs(outputs, swapped, lambda ratio=ratio: ratio)
            for ratio in (1.0, 0.98, None)
        ]
    )
    assert check == OutputCheck(compared=3, differing=2)
    assert summarise_check([]) == OutputCheck(compared=0, differing=0)


TOKENS = 8


class Repeater(PlayedTextServer):
    """A server that answers a prompt by how often it was asked before.

    The nth time it gives `answers[n]`, and the last of them from there on.
    """

    def __init__(self, *answers, cached=(0,), refuse=lambda _: None):
        super().__init__(refuse)
        self._answers, self._cached, self._times = answers, cached, Counter()

    def answer(self, prompt, count):
        times = self._times[tuple(prompt)]
        self._times[tuple(prompt)] += 1
        tokens = self._answers[min(times, len(self._answers) - 1)][:count]
        cached = self._cached[min(times, len(self._cached) - 1)]
        text = "".join(chr(97 + token % 26) for token in tokens)
        return Generated(text, "length", 8, count, cached)


@pytest.fixture
def check(monkeypatch):
    """Return a function that returns the check of a run against a server.

    The run has four queries by one user unless settings differ.
    """
    play_time(monkeypatch)

    def checked(server, **settings):
        return measure_text(
            monkeypatch,
            server,
            **{"output_tokens": TOKENS, "queries": 4, "seconds": 0.0} | settings,
        ).output_check

    return checked


SAME = [5] * TOKENS
LATER = [5] * 6 + [9] * 2
OTHER = [9] + [5] * 7
USERS = {"concurrency": 2}


def test_allowed_differences_are_separated_from_others(check):
    """With several users an answer may part from the first one after some tokens.

    A single user's answer may not, and two answers that were asked for alone must be equal.
    """
    for answers, settings, counted in [
        ([SAME], {}, {}),
        ([SAME], USERS, {}),
        # A sampling server: the old check compared one character.
        ([SAME, LATER, SAME], {}, {"varying": 2}),
        ([SAME, SAME, LATER], USERS, {"varying": 2}),
        ([SAME, LATER], {}, {"varying": 2}),
        ([SAME, LATER], USERS, {}),
        ([SAME, OTHER], USERS, {"differing": 2}),
    ]:
        with table_row(counted, settings):
            repeated = check(Repeater(*answers), **settings)
            outcomes = {name: getattr(repeated, name) for name in ("varying", "differing")}
            assert {name: count for name, count in outcomes.items() if count} == counted
            assert repeated.compared == 2


def test_other_tokens_from_the_cache_explain_another_text(check):
    """Behind another cached beginning a server sums in another order.

    This holds for a single cached token too.
    """
    assert check(Repeater(SAME, LATER, cached=(1, 0))).varying == 0


def test_a_run_of_which_nothing_was_repeated_compares_nothing(check):
    """After the three and the four timed queries the server answers none."""
    repeated = check(Repeater(SAME, refuse=lambda number: busy(number) if number > 7 else None))
    assert repeated.compared == 0


def answer_of(text, ended="length", output_tokens=4):
    return Generated(text, ended, 8, output_tokens, 0)


def test_answers_are_compared_by_their_text():
    """The end of an answer and its number of tokens are parts of it."""
    usage, estimated = (
        GeneratorAbilities(counts="usage", is_local=False),
        GeneratorAbilities(counts="estimated", is_local=False),
    )
    for timed, repeated, abilities, outcome in [
        (answer_of("abcd"), answer_of("abcd"), usage, "same"),
        (answer_of(""), answer_of(""), usage, "same"),
        (answer_of("abcd"), answer_of("abxx"), usage, "varying"),
        (answer_of("abcd"), answer_of("abcdefgh"), usage, "varying"),
        (answer_of("abcd"), answer_of("abcd", ended="end_of_text"), usage, "varying"),
        (answer_of("abcd"), answer_of("abcd", output_tokens=5), usage, "varying"),
        (answer_of("abcd"), answer_of("abcd", output_tokens=3), estimated, "same"),
        (answer_of("abcd"), answer_of(""), usage, "differing"),
    ]:
        with table_row(outcome, repeated):
            assert compare_answers(timed, [repeated, repeated], abilities, overlap=False) == outcome
