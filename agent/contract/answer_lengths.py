"""Whether whole queries of two language models are the same work: their answers have to be as long."""

from edgemeter.agent.base.run_statistics import MATTERS_RATIO
from edgemeter.agent.contract.record_generation import Generation


def why_other_answers(first: Generation | None, other: Generation | None) -> str:
    """Return why whole queries of two runs are other work, since their answers have other lengths; empty where they may be the same."""
    if (
        first is None
        or other is None
        or abs(other.mean_output_tokens - first.mean_output_tokens) <= MATTERS_RATIO * first.mean_output_tokens
    ):
        return ""
    return f"answers of {other.mean_output_tokens:.4g} against {first.mean_output_tokens:.4g} tokens on average are other work"
