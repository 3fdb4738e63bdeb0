"""Facts about a net energy that is absent: the reason has a remedy."""

import pytest

from tests.fixtures.record_factory import make_energy

LOST = {"net_mj": None, "net_u_mj": None}
NO_IDLE = {**LOST, "idle_before_w": None, "idle_after_w": None}


@pytest.mark.parametrize(
    ("changes", "idle_s", "words"),
    [
        (NO_IDLE, 0.0, "0 s of idle give ina219 no idle power; let it idle longer, with --idle 10"),
        (NO_IDLE, 3.0, "3 s of idle give ina219 no idle power; let it idle longer, with --idle 6"),
        (
            LOST,
            10.0,
            (
                "lost in the uncertainty of idle power; measure longer, or let it idle longer, "
                "with --idle 20"
            ),
        ),
        (
            {**LOST, "after_load_mj": 40.0},
            10.0,
            (
                "such as a fan, hides idle power; set the fan to one speed, or let it idle "
                "longer, with --idle"
            ),
        ),
    ],
)
def test_why_there_is_no_net_energy_names_what_gives_one(changes, idle_s, words):
    """No idle, too short an idle, a load of little power and a fan that runs on are reasons."""
    assert words in make_energy(**changes).why_no_net(idle_s, "--idle")


def test_a_net_energy_has_no_reason():
    """No reason is stated where the load stands out from the idle power."""
    assert make_energy().why_no_net(10.0, "--idle") is None
