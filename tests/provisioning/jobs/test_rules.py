"""Who may start: single rules, and what holds for every order drawn at random."""

import random

from edgemeter.provisioning.jobs import rules
from edgemeter.provisioning.jobs.rules import Candidate, InFlight, StartRules
from tests.fixtures.rows import table_row

S = 1_000_000_000
A, B = Candidate(1, "a", 0), Candidate(2, "b", 0)


def test_of_devices_with_an_exclusive_tag_one_measures():
    """Whether this job or the one in flight asked for it; what is no measurement passes."""
    rule = StartRules(tags={"a": ("box",), "b": ("box", "coral"), "c": ("coral",)})
    exclusive = Candidate(1, "a", 0, exclusive=("box",))
    assert InFlight(rule, [exclusive]).why_not(B, 1) == "another of 'box' is measuring"
    assert InFlight(rule, [Candidate(2, "b", 0)]).why_not(exclusive, 1) == "another of 'box' is measuring"
    assert InFlight(rule, [exclusive]).why_not(Candidate(3, "c", 0), 1) is None
    assert InFlight(rule, [A]).why_not(B, 1) is None
    assert InFlight(rule, [exclusive]).why_not(Candidate(4, "b", 0, measures=False), 1) is None


def test_a_campaign_has_at_most_its_limit_in_flight():
    """With the reason; a retry waits for its time."""
    busy = InFlight(StartRules(most_in_flight={"c": 1}), [Candidate(1, "a", 0, campaign="c")])
    assert busy.why_not(Candidate(2, "b", 0, campaign="c"), 1) == "its campaign has 1 executions in flight, its limit"
    assert busy.why_not(B, 1) is None
    assert busy.why_not(Candidate(3, "b", 20 * S), 1) == "retry in 20 s"
    assert busy.why_not(A, 1) == "its device is busy"


def run_at_random(seed):
    """Start and end at random: what is in flight is counted anew each time, and checked against the rules."""
    draw = random.Random(seed)  # noqa: S311 - a test
    words = ["box", "rack", "coral"]
    tags = {f"d{number}": tuple(draw.sample(words, draw.randint(0, 2))) for number in range(12)}
    rule = StartRules(tags=tags, most_in_flight={"c": draw.randint(1, 3)})
    waiting = [
        Candidate(
            number,
            f"d{draw.randrange(12)}",
            draw.choice([0, 3600 * S]),
            measures=draw.random() < 0.8,
            exclusive=tuple(draw.sample(words, draw.choice([0, 0, 1]))),
            campaign=draw.choice([None, "c"]),
        )
        for number in range(40)
    ]
    flying, now_ns = {}, 0
    for _ in range(150):
        now_ns += draw.randint(1, 1200) * S
        for candidate in rules.choose(waiting, InFlight(rule, flying.values()), now_ns, draw.randint(1, 5)):
            assert candidate.device not in flying
            assert candidate.due_ns <= now_ns
            waiting.remove(candidate)
            flying[candidate.device] = candidate
        measuring = [candidate for candidate in flying.values() if candidate.measures]
        for candidate in measuring:
            for tag in set(candidate.exclusive) & set(tags[candidate.device]):
                assert [other for other in measuring if tag in tags[other.device]] == [candidate]
        assert sum(candidate.campaign == "c" for candidate in flying.values()) <= rule.most_in_flight["c"]
        for device in draw.sample(sorted(flying), draw.randint(0, len(flying))):
            del flying[device]
    # With nobody in flight nothing waits for nothing.
    assert [InFlight(rule).why_not(candidate, now_ns) for candidate in waiting] == [None] * len(waiting)


def test_no_rule_is_ever_violated_and_nothing_waits_for_nothing():
    """Twenty rounds of starts and ends drawn at random."""
    for seed in range(20):
        with table_row(seed):
            run_at_random(seed)
