"""Whether a model behind a server, or frames at a fixed rate, kept up with the offered load."""

from collections.abc import Sequence

from edgemeter.agent.contract.record_figures import Load, Steady
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER, SYNTHETIC, Generation

MOST_FAILED_RATIO = 0.01
# A rate of frames is sustained if fewer are missed; that takes at least this many frames.
MOST_MISSED_RATIO, FEWEST_FRAMES = 0.01, 300


def fails_too_often(load: Load, generation: Generation | None, answered: int) -> bool:
    """Return whether more than 1% of the queries failed.

    Empty answers to questions of a file count as (wrong) answers.
    """
    is_scored = generation is not None and generation.prompts != SYNTHETIC
    unanswered = load.failed_queries - (load.failures.get(EMPTY_ANSWER, 0) if is_scored else 0)
    return unanswered > MOST_FAILED_RATIO * (load.failed_queries + answered)


def are_in_time(runs: Sequence[Steady]) -> bool | None:
    """Return whether each run missed less than 1% of its frames.

    None if runs disagree or have too few frames.
    """
    are_held = {frames.missed_ratio < MOST_MISSED_RATIO for frames in runs}
    return (
        are_held.pop()
        if len(are_held) == 1 and sum(frames.frames for frames in runs) >= FEWEST_FRAMES
        else None
    )
