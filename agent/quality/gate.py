"""The quality gate: whether a quantised file is still good enough for its speed to count beside that of its 16-bit source.

Its perplexity may be at most 5% higher, and each accuracy has to reach 90% of the source's. Figures are compared only if they were
computed on the same text or items by the same rule; nothing that compares is an error, not a pass.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.multiple_choice import ChoiceScores
from edgemeter.agent.quality.perplexity import Perplexity
from edgemeter.agent.quality.short_answers import AnswerScores

HIGHEST_PERPLEXITY_RATIO = 1.05
LOWEST_ACCURACY_RATIO = 0.9


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """The known quality of one file; None where it was not scored."""

    perplexity: Perplexity | None = None
    choices: ChoiceScores | None = None
    answers: AnswerScores | None = None


class GateCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One figure against the source's: `ratio` is file / source, `limit` the worst that passes."""

    figure: str
    value: float
    source_value: float
    ratio: float
    limit: float
    passed: bool

    def sentence(self) -> str:
        """Return the check in words."""
        bound = f"at most {self.limit:g}" if self.figure == "perplexity" else f"at least {self.limit:g}"
        return (
            f"{self.figure} {self.value:.5g} is {self.ratio:.4f} of the source's {self.source_value:.5g}: "
            f"{'passes' if self.passed else 'fails'} ({bound})"
        )


class QualityGate(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, and the checks it rests on; a gate passes if every check does."""

    passed: bool
    checks: tuple[GateCheck, ...]


def quality_gate(quantised: Quality, source: Quality) -> QualityGate:
    """Return whether a quantised file is good enough, compared with the file it was made from.

    Raises:
        ConfigError: the two have no figure in common, one was computed on another text, other items or by another rule, or the source's
            accuracy is 0.
    """
    checks = (*_perplexity_check(quantised.perplexity, source.perplexity), *_accuracy_checks(quantised, source))
    if not checks:
        raise ConfigError("the file and its source have no quality figure in common: score both on the same text or items")
    return QualityGate(passed=all(check.passed for check in checks), checks=checks)


def _perplexity_check(quantised: Perplexity | None, source: Perplexity | None) -> Iterator[GateCheck]:
    if quantised is None or source is None:
        return
    for name in ("rule", "text_sha256", "context_tokens", "bos_token", "text_tokens"):
        value, other = getattr(quantised, name), getattr(source, name)
        if value != other:
            raise ConfigError(f"perplexities with different {name} ({value!r}, source {other!r}) do not compare: score both the same way")
    ratio, limit = quantised.value / source.value, HIGHEST_PERPLEXITY_RATIO
    yield GateCheck(figure="perplexity", value=quantised.value, source_value=source.value, ratio=ratio, limit=limit, passed=ratio <= limit)


def _accuracy_checks(quantised: Quality, source: Quality) -> Iterator[GateCheck]:
    compared: tuple[tuple[str, Any, Any, tuple[str, ...]], ...] = (
        ("choices", quantised.choices, source.choices, ("acc", "acc_norm")),
        ("questions", quantised.answers, source.answers, ("exact_match", "f1")),
    )
    for noun, scores, of_source, figures in compared:
        if scores is None or of_source is None:
            continue
        hashes = scores.items_sha256, of_source.items_sha256
        if hashes[0] != hashes[1]:
            raise ConfigError(
                f"accuracies on different {noun} (items {hashes[0][:12]} and {hashes[1][:12]}) do not compare: score both on the same file"
            )
        for figure in figures:
            value, source_value, limit = getattr(scores, figure), getattr(of_source, figure), LOWEST_ACCURACY_RATIO
            if source_value == 0:
                raise ConfigError(f"the source's {figure} is 0, so no ratio to it exists: choose items that the source can answer")
            ratio = value / source_value
            yield GateCheck(figure=figure, value=value, source_value=source_value, ratio=ratio, limit=limit, passed=ratio >= limit)
