"""Facts about answers that are asked again: greedy generation repeats itself, and how a server's answer may differ from the timed one."""

from collections import Counter

import pytest

from edgemeter.agent.engine.repeated_answers import are_alike, common_ratio
from edgemeter.agent.generators import Generated, GeneratorAbilities
from tests.fixtures.played_servers import PlayedTextServer, busy, measure_text
from tests.fixtures.played_time import play_time
from tests.fixtures.rows import table_row

TOKENS = 8


class Repeater(PlayedTextServer):
    """A server that answers a prompt by how often it was asked before: the nth time by `answers[n]`, and by the last from there on."""

    def __init__(self, *answers, cached=(0,), refuse=lambda _: None):
        super().__init__(refuse)
        self._answers, self._cached, self._times = answers, cached, Counter()

    def answer(self, prompt, count):
        """Return the answer."""
        times = self._times[tuple(prompt)]
        self._times[tuple(prompt)] += 1
        tokens = self._answers[min(times, len(self._answers) - 1)][:count]
        cached = self._cached[min(times, len(self._cached) - 1)]
        text = "".join(chr(97 + token % 26) for token in tokens)
        return Generated(text, "length", 8, count, cached)


@pytest.fixture
def check(monkeypatch):
    """Return a function that returns the check of a run against a server, four queries by one user unless settings differ."""
    play_time(monkeypatch)

    def checked(server, **settings):
        return measure_text(monkeypatch, server, **{"output_tokens": TOKENS, "queries": 4, "seconds": 0.0} | settings).output_check

    return checked


SAME = [5] * TOKENS
LATER = [5] * 6 + [9] * 2
OTHER = [9] + [5] * 7
USERS = {"concurrency": 2}


def test_allowed_differences_are_separated_from_others(check):
    """Beside others an answer may part later on; alone it may not, and asked twice alone there is one."""
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
    """Behind another cached beginning a server sums in another order: of one token that may stay there, too."""
    assert check(Repeater(SAME, LATER, cached=(1, 0))).varying == 0


def test_a_run_of_which_nothing_was_repeated_compares_nothing(check):
    """Three queries before the timed four, and then none is answered."""
    repeated = check(Repeater(SAME, refuse=lambda number: busy(number) if number > 7 else None))
    assert repeated.compared == 0


def answer_of(text, ended="length", output_tokens=4):
    """Return an answer."""
    return Generated(text, ended, 8, output_tokens, 0)


def test_answers_are_compared_by_their_text():
    """How an answer ended, and how many tokens it has, is a part of it."""
    usage, estimated = GeneratorAbilities(counts="usage", is_local=False), GeneratorAbilities(counts="estimated", is_local=False)
    for other, ratio, alike in [
        (answer_of("abcd"), 1.0, True),
        (answer_of("abxx"), 0.5, False),
        (answer_of("abcdefgh"), 0.5, False),
        (answer_of("abcd", ended="end_of_text"), 1.0, False),
        (answer_of("abcd", output_tokens=5), 1.0, False),
        (answer_of(""), 0.0, False),
    ]:
        assert common_ratio(answer_of("abcd"), other) == ratio, other
        assert are_alike(answer_of("abcd"), other, usage) == alike, other
    assert are_alike(answer_of("abcd"), answer_of("abcd", output_tokens=3), estimated)
    assert common_ratio(answer_of(""), answer_of("")) == 1.0
