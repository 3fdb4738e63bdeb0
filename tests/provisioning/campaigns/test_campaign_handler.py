"""What a campaign does next, by counts alone."""

import random

from edgemeter.agent.contract.orders import FINAL
from edgemeter.provisioning.campaigns import campaign_handler
from edgemeter.provisioning.registry.campaigns import AbortRules, Campaign, GroupRules


def running(wave=0, waves=3, **rules):
    """Return a running campaign."""
    return Campaign("c", "running", None, wave, waves, GroupRules(**rules), 0, 0)


def after(campaign, counts):
    """Return the state and the released group after one step."""
    step = campaign_handler.next_step(campaign, counts, counts, 9)
    return None if step is None else (step.state, step.wave)


def test_the_next_group_begins_or_the_campaign_stops():
    """The threshold and the criteria, at their edges."""
    for counts, expected in (
        ({(0, "queued"): 5, (1, "held"): 5}, None),
        ({(0, "done"): 3, (0, "running"): 2}, None),
        # Four of five are 80%: whoever is offline holds up nobody.
        ({(0, "done"): 4, (0, "queued"): 1}, ("running", 1)),
        ({(0, "done"): 3, (0, "failed"): 2}, ("aborted", 0)),
        ({(0, "done"): 8, (0, "failed"): 2}, ("running", 1)),
        # It can no longer reach the threshold, though two are still at it.
        ({(0, "done"): 1, (0, "failed"): 1, (0, "rejected"): 1, (0, "running"): 2}, ("aborted", 0)),
        # Too few have ended for the criteria, but all of the group have.
        ({(0, "failed"): 1}, ("aborted", 0)),
        # What somebody cancelled is not there.
        ({(0, "done"): 1, (0, "cancelled"): 9}, ("running", 1)),
        # A group all of whose cells are impossible has no executions.
        ({(1, "held"): 5}, ("running", 1)),
    ):
        assert after(running(), counts) == expected, f"{counts!r}"


def test_the_criteria_stop_at_their_share():
    """Of at least three; cancelled ones count for nothing."""
    for counts, stops in (
        ({(0, "failed"): 2}, False),
        ({(0, "failed"): 3}, True),
        ({(0, "done"): 4, (0, "failed"): 1}, False),
        ({(0, "done"): 3, (0, "failed"): 1}, True),
        ({(0, "done"): 3, (0, "rejected"): 1}, True),
        ({(0, "done"): 3, (1, "timed_out"): 1}, True),
        # One of five each: no single kind is more than 20%.
        ({(0, "done"): 3, (0, "failed"): 1, (0, "rejected"): 1}, False),
        ({(0, "cancelled"): 99}, False),
    ):
        assert (campaign_handler.why_abort(AbortRules(), counts) is not None) is stops, f"{counts!r}"


def test_a_campaign_always_comes_to_an_end():
    """Whatever ends how: drawn at random, each step releases the next group, ends it, or waits for what is still open."""
    draw = random.Random(3)  # noqa: S311 - a test
    for _ in range(50):
        waves = draw.randint(1, 4)
        states = {(wave, number): "held" for wave in range(waves) for number in range(draw.randint(0, 4))}
        campaign = running(waves=waves, success_ratio=draw.choice([0.1, 0.5, 1.0]))
        states.update({key: "queued" for key in states if key[0] == 0})
        for _ in range(200):
            counts = {}
            for (wave, _), state in states.items():
                counts[wave, state] = counts.get((wave, state), 0) + 1
            step = campaign_handler.next_step(campaign, counts, counts, 9)
            if step is not None:
                campaign = step
                if step.state == "running":
                    states.update({key: "queued" for key, state in states.items() if key[0] <= step.wave and state == "held"})
                if campaign.state != "running":
                    break
                continue
            still = [key for key, state in states.items() if state == "queued"]
            assert still, (campaign, counts)
            states[draw.choice(still)] = draw.choice(sorted(FINAL))
        assert campaign.state in {"done", "aborted"}
        if campaign.state == "done":
            assert all(state in FINAL for state in states.values())
