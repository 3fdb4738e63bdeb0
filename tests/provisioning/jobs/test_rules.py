"""Who may start."""

from edgemeter.provisioning.jobs import rules
from edgemeter.provisioning.jobs.rules import Candidate, InFlight, StartRules

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


def test_what_starts_counts_as_in_flight_for_the_next_one_and_a_limit_of_them_starts():
    """In the order given, each at its time and not before."""
    second, later, last = Candidate(3, "a", 0), Candidate(4, "c", 2), Candidate(5, "d", 0)
    waiting = [A, second, later, B, last]
    assert rules.choose(waiting, InFlight(StartRules()), 1, 2) == [A, B]
    assert rules.choose(waiting, InFlight(StartRules()), 2, 9) == [A, later, B, last]
