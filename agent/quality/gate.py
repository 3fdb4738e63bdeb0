"""The quality gate: whether a quantised file is still good enough for its speed to count beside that of its 16-bit source.

Its perplexity may be at most 5% higher. Perplexities are compared only if they were computed on the same text by the same rule.
"""

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.perplexity import Perplexity

HIGHEST_PERPLEXITY_RATIO = 1.05


class QualityGate(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a file with this perplexity, beside its source's: `ratio` is file / source, `limit` the highest that passes."""

    value: float
    source_value: float
    ratio: float
    limit: float
    passed: bool

    def sentence(self) -> str:
        """Return the decision in words."""
        return (
            f"perplexity {self.value:.5g} is {self.ratio:.4f} of the source's {self.source_value:.5g}: "
            f"{'passes' if self.passed else 'fails'} (at most {self.limit:g})"
        )


def quality_gate(quantised: Perplexity, source: Perplexity) -> QualityGate:
    """Return whether a quantised file is good enough, compared with the file it was made from.

    Raises:
        ConfigError: one was scored on another text or by another rule.
    """
    for name in ("rule", "text_sha256", "context_tokens", "bos_token", "text_tokens"):
        value, other = getattr(quantised, name), getattr(source, name)
        if value != other:
            raise ConfigError(f"perplexities with different {name} ({value!r}, source {other!r}) do not compare: score both the same way")
    ratio, limit = quantised.value / source.value, HIGHEST_PERPLEXITY_RATIO
    return QualityGate(value=quantised.value, source_value=source.value, ratio=ratio, limit=limit, passed=ratio <= limit)
