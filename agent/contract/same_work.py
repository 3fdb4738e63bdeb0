"""Whether queries of two language models are the same work: on the same prompts, with answers as long."""

from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.contract.record import RunRecord


def why_other_answers(first: RunRecord, other: RunRecord) -> str:
    """Return why whole queries of two runs are other work; empty where they may be the same."""
    if first.generation is None or other.generation is None:
        return ""
    if reason := why_other_questions(first, other):
        return reason
    tokens = first.generation.mean_output_tokens, other.generation.mean_output_tokens
    if abs(tokens[1] - tokens[0]) <= MATTERS_RATIO * tokens[0]:
        return ""
    return f"answers of {tokens[1]:.4g} against {tokens[0]:.4g} tokens on average are other work: compare TPOT"


def why_other_questions(first: RunRecord, other: RunRecord) -> str:
    """Return why two runs asked other prompts of one file; empty where both asked all of them equally often, or the same of them."""
    if first.generation is None or other.generation is None or first.generation.prompts_sha256 is None:
        return ""
    if first.generation.prompts_sha256 != other.generation.prompts_sha256:
        return ""
    prompts = first.dataset.images
    # The order, and what a subset draws, is of the case's seed, to which a run adds its repeat.
    if (prompts, first.seed - first.repeat) != (other.dataset.images, other.seed - other.repeat):
        return "another subset or order of the file was asked"
    counts = [run.latency.count + (run.load.failed_queries if run.load else 0) for run in (first, other)]
    if counts[0] == counts[1] or not any(count % max(prompts, 1) for count in counts):
        return ""
    return f"{counts[1]} against {counts[0]} queries ask other prompts of a file of {prompts}: draw a subset that is asked whole (--subset)"
