"""What a campaign does next: a pure function of its rules and of how many executions stand where."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgemeter.agent.jobs.contract import FINAL
from edgemeter.provisioning.campaigns.campaign_file import Abort
from edgemeter.provisioning.campaigns.campaigns import Campaign

# By (group, state).
Counts = Mapping[tuple[int, str], int]
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Step:
    """How the campaign stands after it; `releases` is the group that may begin, None where none does."""

    campaign: Campaign
    releases: int | None = None


def step(campaign: Campaign, counts: Counts, judged: Counts, now_ns: int) -> Step | None:
    """Return the next step of a running campaign, None when it goes on as it does.

    `counts` are all of its executions, `judged` those that the abort criteria look at.
    """
    if campaign.state != "running":
        return None
    if why := why_abort(campaign.rules.abort, judged):
        return Step(replace(campaign, state="aborted", reason=why))
    done, total, left = _of_wave(counts, campaign.wave)
    needed = campaign.rules.success_ratio * total - _EPSILON
    if campaign.wave + 1 >= campaign.waves:
        is_over = not any(count for (_, state), count in counts.items() if state not in FINAL)
        return Step(replace(campaign, state="done", reason=None, ended_ns=now_ns)) if is_over else None
    if done >= needed:
        return Step(replace(campaign, wave=campaign.wave + 1), campaign.wave + 1)
    if done + left < needed:
        why = f"group {campaign.wave + 1} of {campaign.waves}: {done} of {total} done, {campaign.rules.success_ratio:.0%} needed"
        return Step(replace(campaign, state="aborted", reason=why))
    return None


def why_abort(rule: Abort, counts: Counts) -> str | None:
    """Return which criterion says stop, None when none does."""
    ended = {state: sum(count for (_, one), count in counts.items() if one == state) for state in FINAL}
    executed = sum(ended.values()) - ended["cancelled"]
    if executed < rule.min_executed:
        return None
    for state, limit in (("failed", rule.failed_ratio), ("rejected", rule.rejected_ratio), ("timed_out", rule.timed_out_ratio)):
        if ended[state] / executed > limit + _EPSILON:
            return f"{ended[state]} of {executed} {state.replace('_', ' ')}, at most {limit:.0%}"
    return None


def _of_wave(counts: Counts, wave: int) -> tuple[int, int, int]:
    """Return how many of a group are done, are there at all, and may still become done; what was cancelled is not there."""
    own = {state: count for (group, state), count in counts.items() if group == wave and state != "cancelled"}
    return own.get("done", 0), sum(own.values()), sum(count for state, count in own.items() if state not in FINAL)
