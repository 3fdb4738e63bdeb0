"""Facts about the sentence of a comparison: every figure in the words that its interval bears."""

import pytest

from edgemeter.agent.base import decision
from edgemeter.agent.base.accuracy_bounds import DifferenceBounds
from edgemeter.agent.base.decision import Difference, accuracy_difference, sentence, state_of

UNKNOWN = DifferenceBounds(None, "fewer than 20 images")


def of(figure, change, low, high, matters=0.03, **more):
    """Return the difference of a ratio with its interval."""
    state = state_of(low, high, matters, 1.0)
    return Difference(figure=figure, unit="ms", state=state, matters=matters, change=change, low=low, high=high, **more)


def points(change, low, high):
    """Return the difference of two accuracies, in points of 100."""
    return accuracy_difference("AP", (0.5, 0.5 + change / 100), DifferenceBounds((low / 100, high / 100)), 0.005)


def test_each_figure_is_said_as_sure_as_it_is():
    """What is not sure, or does not matter, is called that."""
    for one, says in [
        (of("latency", 0.7, 0.65, 0.75), "B is 1.43 times faster (95% 1.33 to 1.54)"),
        (of("latency", 1.4, 1.3, 1.5), "B is 1.40 times slower (95% 1.30 to 1.50)"),
        (of("latency", 1.0, 0.98, 1.02), "B is as fast as A within 3%"),
        (of("latency", 1.05, 1.01, 1.09), "B is 1.05 times slower (95% 1.01 to 1.09, perhaps less than the 3% that matter)"),
        (of("throughput", 1.4, 1.3, 1.5), "B is 1.40 times faster (95% 1.30 to 1.50)"),
        (of("throughput", 0.5, 0.4, 0.6), "B is 2.00 times slower (95% 1.67 to 2.50)"),
        (of("energy", 0.77, 0.74, 0.8), "B costs 23.0% less energy (95% 20.0 to 26.0%)"),
        (of("energy", 1.2, 1.1, 1.3), "B costs 20.0% more energy (95% 10.0 to 30.0%)"),
        (
            Difference(figure="energy", unit="mJ", state="lower", matters=0.03, change=0.77),
            "B costs 23.0% less energy (too few runs for an interval)",
        ),
        (of("energy", 3.1, 3.0, 3.2), "B costs 3.10 times the energy (95% 3.00 to 3.20)"),
        (of("energy", 1.0, 0.99, 1.01), "B costs as much energy as A within 3%"),
        (points(-3.7, -5.3, -2.1), "B loses 3.7 AP points (95% 2.1 to 5.3)"),
        (points(3.7, 2.1, 5.3), "B gains 3.7 AP points (95% 2.1 to 5.3)"),
        (points(-0.6, -1.0, -0.2), "B loses 0.6 AP points (95% 0.2 to 1.0, perhaps less than the 0.5 that matter)"),
        (points(0.0, -2.0, 2.0), "not sure: AP (+0.0 points, 95% -2.0 to +2.0)"),
        (points(0.1, -0.2, 0.4), "B has within 0.5 points the same AP as A"),
        (accuracy_difference("AP", (0.5, 0.5), UNKNOWN, 0.005), "B has the same AP as A"),
        (
            of("latency", 1.02, 0.9, 1.1, note="about 12 more pairs would settle it"),
            "not sure: latency (1.02 times A's, 95% 0.900 to 1.10; about 12 more pairs would settle it)",
        ),
        (points(-1.0, -3.0, 1.0), "not sure: AP (-1.0 points, 95% -3.0 to +1.0)"),
        (accuracy_difference("AP", (0.5, 0.4), UNKNOWN, 0.005), "not sure: AP (-10.0 points; no interval, fewer than 20 images)"),
        (decision.absent("energy", "mJ", 0.03, "no sensor"), "nothing of B and A could be compared"),
    ]:
        assert sentence("B", "A", [one]) == says, f"{says!r}"


def test_all_figures_make_one_sentence():
    """What is known, then what is not sure, then what speaks against believing it; what is absent is left out."""
    found = [of("latency", 0.7, 0.65, 0.75), points(-1.0, -3.0, 1.0), decision.absent("energy", "mJ", 0.03, "no sensor")]
    assert sentence("B", "A", [*found, of("energy", 0.5, 0.4, 0.6)], ["2 of 10 runs are suspect (throttled)"]) == (
        "B is 1.43 times faster (95% 1.33 to 1.54) and costs 50.0% less energy (95% 40.0 to 60.0%); "
        "not sure: AP (-1.0 points, 95% -3.0 to +1.0); 2 of 10 runs are suspect (throttled)"
    )


@pytest.mark.parametrize(("one", "text"), [(of("latency", 0.714, 0.7, 0.72), "0.714x"), (points(-3.7, -5, -2), "-3.7 points")])
def test_a_change_alone_fits_a_table(one, text):
    """A ratio as a factor, an accuracy in points."""
    assert decision.change_text(one) == text
