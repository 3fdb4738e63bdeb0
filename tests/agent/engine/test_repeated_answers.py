"""Facts about answers that are asked again: greedy generation repeats itself, and how a server's answer may differ from the timed one."""

import threading
import time
from collections import Counter

import msgspec
import pytest

from edgemeter.agent.engine import generating
from edgemeter.agent.engine.repeated_answers import are_alike, common_ratio
from edgemeter.agent.generators import Generated, GeneratorAbilities
from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.language_server import LanguageServer, Reply, events, llama_server
from tests.fixtures.record_factory import make_environment
from tests.fixtures.run_jobs import one_case, run_job

TOKENS = 8
RULES = {"outputs-differ", "answers-vary", "answers-part", "unrepeated-answers"}
ONE_BY_ONE, USERS = {"queries": 4, "seconds": 0.0}, {"concurrency": 2, "queries": 4, "seconds": 0.0}


class Repeater:
    """A server that answers a prompt by how often it was asked before: the nth time by `answers[n]`, and by the last from there on."""

    def __init__(self, *answers, refused_from=None, cached=(0,)):
        self.server: LanguageServer = llama_server()
        self._answers, self._refused_from, self._cached = answers, refused_from, cached
        self._times, self._lock = Counter(), threading.Lock()
        self.server.routes["/completion"] = self.complete

    def complete(self, content):
        """Return the answer, a line a token; an id of None is held back, as half of a character is."""
        with self._lock:
            times = self._times[str(content["prompt"])]
            self._times[str(content["prompt"])] += 1
        if self._refused_from is not None and times >= self._refused_from:
            return Reply({"error": "no slot"}, status=503)
        tokens = self._answers[min(times, len(self._answers) - 1)][: content["n_predict"]]
        lines = [
            {"content": chr(97 + abs(token) % 26), "tokens": [token] if token >= 0 else [], "tokens_predicted": n}
            for n, token in enumerate(tokens, 1)
        ]
        cached = self._cached[min(times, len(self._cached) - 1)]
        timings = {"prompt_n": 8 - cached, "cache_n": cached, "prompt_ms": 1.0, "predicted_n": len(tokens), "predicted_ms": 2.0}
        last = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "timings": timings, "tokens_evaluated": 8}
        return events(*lines, {**last, "tokens_predicted": len(tokens)}, has_end=False)


def checked(folder, repeater, **settings):
    """Return the check of a run against it, and the violated rules that are about it, with their evidence."""
    path = folder / "m.server"
    path.write_text(f'url = "{repeater.server.url}"\n')
    usual = {"model": str(path), "mode": "rapid", "prompt_tokens": 8, "output_tokens": TOKENS}
    case, now = msgspec.structs.replace(one_case(**usual | settings), warm_up_seconds=0.0), time.monotonic_ns()
    run = generating.measure_generation(run_job(case, spawned_ns=now), now, lambda _: None)
    repeater.server.close()
    judged = verdict.judge(run, [], make_environment())
    evidence = dict(reason.split(": ", 1) for reason in (*judged.reasons, *judged.notes))
    return run.output_check, {rule: text for rule, text in evidence.items() if rule in RULES}


SAME = [5] * TOKENS
LATER = [5] * 6 + [9] * 2
OTHER = [9] + [5] * 7
# Of a character in two tokens the first id does not come: the text is the same, and it is known to be.
EMOJI = [5, 5, -5, *[5] * 5]


@pytest.mark.parametrize(
    ("answers", "settings", "counts", "rules"),
    [
        ([SAME], ONE_BY_ONE, {"identical": 2}, set()),
        ([SAME], USERS, {"identical": 2}, set()),
        # A sampling server: the old check compared one character.
        ([SAME, LATER, SAME], ONE_BY_ONE, {"varying": 2}, {"answers-vary"}),
        ([SAME, SAME, LATER], USERS, {"varying": 2}, {"answers-vary"}),
        ([SAME, LATER], ONE_BY_ONE, {"changed": 2}, {"answers-vary"}),
        ([SAME, LATER], USERS, {"parting": 2}, {"answers-part"}),
        ([SAME, OTHER], USERS, {"differing": 2}, {"outputs-differ"}),
        ([EMOJI, SAME], USERS, {"identical": 2}, set()),
    ],
)
def test_allowed_differences_are_separated_from_others(tmp_path, answers, settings, counts, rules):
    """Beside others an answer may part later on; alone it may not, and asked twice alone there is one."""
    check, violated = checked(tmp_path, Repeater(*answers), **settings)
    fields = ("identical", "varying", "changed", "parting", "differing")
    assert {name: count for name in fields if (count := getattr(check, name))} == counts
    assert check.compared == 2
    assert set(violated) == rules
    assert check.common_ratio == (None if rules == set() else 0.0 if "outputs-differ" in rules else 0.75)
    if rules & {"answers-vary", "answers-part"}:
        assert "2 of 2 prompts got other answers, from 75% of the answer on" in "".join(violated.values())


def test_other_tokens_from_the_cache_explain_another_text(tmp_path):
    """Behind another cached beginning a server sums in another order: of one token that may stay there, too."""
    check, violated = checked(tmp_path, Repeater(SAME, LATER, cached=(1, 0)), **ONE_BY_ONE)
    assert (check.parting, set(violated)) == (2, {"answers-part"})


def test_a_run_of_which_nothing_was_repeated_is_suspect(tmp_path):
    """Nothing was compared, for the kind of failure that is named."""
    check, violated = checked(tmp_path, Repeater(SAME, refused_from=1), **ONE_BY_ONE)
    assert (check.compared, check.reason) == (0, "no repetition was answered (http 503: 4)")
    assert violated == {"unrepeated-answers": check.reason}


def answer_of(text, tokens=(), ended="length", output_tokens=4):
    """Return an answer."""
    return Generated(tokens, text, ended, 8, output_tokens, 0)


def test_answers_are_compared_by_their_ids_where_both_have_all_else_by_their_text():
    """A missing id is none that differs; how an answer ended, and how many tokens it has, is a part of it."""
    usage, estimated = GeneratorAbilities(counts="usage", is_local=False), GeneratorAbilities(counts="estimated", is_local=False)
    for other, ratio, alike in [
        (answer_of("abcd", (1, 2, 3, 4)), 1.0, True),
        (answer_of("abcd"), 1.0, True),
        (answer_of("abxx"), 0.5, False),
        (answer_of("abcdefgh"), 0.5, False),
        (answer_of("abcd", (1, 2, 3, 5)), 0.75, False),
        (answer_of("abcd", (1, 2, 3, 4), ended="end_of_text"), 1.0, False),
        (answer_of("abcd", output_tokens=5), 1.0, False),
        (answer_of(""), 0.0, False),
    ]:
        assert common_ratio(answer_of("abcd", (1, 2, 3, 4)), other) == ratio, other
        assert are_alike(answer_of("abcd", (1, 2, 3, 4)), other, usage) == alike, other
    assert are_alike(answer_of("abcd"), answer_of("abcd", output_tokens=3), estimated)
    assert common_ratio(answer_of(""), answer_of("")) == 1.0
