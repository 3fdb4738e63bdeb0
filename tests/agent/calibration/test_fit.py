"""Facts about `edgemeter.agent.calibration.fit`."""

import random

import pytest

from edgemeter.agent.calibration.fit import Step, line
from edgemeter.agent.errors import MeasurementError


def steps(gain, offset_w, u_w, seed=0, powers=(2.0, 3.0, 4.0, 5.0, 6.0, 7.0), u_reference_w=None):
    """Return load steps of a reference that shows gain x sensor + offset, both with normal scatter."""
    draw = random.Random(seed)  # noqa: S311 - scatter
    u_reference_w = u_w if u_reference_w is None else u_reference_w
    return [Step(true + draw.gauss(0, u_w), u_w, offset_w + gain * true + draw.gauss(0, u_reference_w), u_reference_w) for true in powers]


def test_points_on_a_line_give_that_line():
    """Gain and offset exactly, and nothing left over."""
    found = line(steps(1.1451, 0.5879, 0.0))
    assert (found.gain, found.offset_w) == (pytest.approx(1.1451, abs=1e-9), pytest.approx(0.5879, abs=1e-9))
    assert found.residual_w < 1e-9


@pytest.mark.parametrize("u_reference_w", [0.001, 0.02])
def test_the_stated_uncertainties_cover_the_truth(u_reference_w):
    """Of 400 fits at two standard uncertainties nearly all hold gain and offset; not all do, so they are not wide for nothing."""
    covered = [0, 0]
    for seed in range(400):
        found = line(steps(1.05, 0.3, 0.02, seed, u_reference_w=u_reference_w))
        covered[0] += abs(found.gain - 1.05) <= 2 * found.gain_u
        covered[1] += abs(found.offset_w - 0.3) <= 2 * found.offset_u_w
    # With four degrees of freedom the widening adds to 95 %.
    assert all(372 <= count <= 399 for count in covered), covered


def test_scatter_of_the_sensor_does_not_flatten_the_slope():
    """An ordinary regression of y on x would give 0.97: its slope is pulled down by errors in x."""
    gains = [line(steps(1.0, 0.0, 0.3, seed, powers=[2 + place / 5 for place in range(50)], u_reference_w=0.01)).gain for seed in range(60)]
    assert sum(gains) / len(gains) == pytest.approx(1.0, abs=0.01)


def test_points_off_the_line_widen_the_uncertainty():
    """A curve that no straight line fits is known to what the points lie off it, not to their scatter."""
    bent = [Step(x, 0.001, x + 0.1 * (x - 4.5) ** 2, 0.001) for x in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0)]
    found = line(bent)
    assert found.residual_w > 0.1
    assert found.offset_u_w > 0.05


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (steps(1, 0, 0.0, powers=(2.0, 3.0)), "at least 3"),
        (steps(1, 0, 0.0, powers=(2.0, 2.0, 2.0)), "different power"),
        (steps(1, 0, 0.05, powers=(2.0, 2.1, 2.2)), "moved the power"),
        (steps(30, 0, 0.001), "do not see the same load"),
        (steps(-1, 9, 0.001), "do not see the same load"),
    ],
)
def test_steps_that_say_nothing_are_refused(points, said):
    """Each with what to do."""
    with pytest.raises(MeasurementError, match=said):
        line(points)
