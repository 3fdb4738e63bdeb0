"""The quality gate: whether a quantised file is still good enough for its speed to count beside that of its 16-bit source.

Its perplexity may be at most 5% higher, and each accuracy has to reach 90% of the source's. Figures are compared only if they were
computed on the same text or items by the same rule; nothing that compares is an error, not a pass.
"""

from collections.abc import Iterator

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


def quality_gate(
    quantised: Quality,
    source: Quality,
    *,
    highest_perplexity_ratio: float = HIGHEST_PERPLEXITY_RATIO,
    lowest_accuracy_ratio: float = LOWEST_ACCURACY_RATIO,
) -> QualityGate:
    """Return whether a quantised file is good enough, compared with the file it was made from.

    Raises:
        ConfigError: the two have no figure in common, one was computed on another text, other items or by another rule, or the source's
            accuracy is 0.
    """
    checks = (
        *_perplexity_check(quantised.perplexity, source.perplexity, highest_perplexity_ratio),
        *_accuracy_checks(quantised, source, lowest_accuracy_ratio),
    )
    if not checks:
        raise ConfigError("the file and its source have no quality figure in common: score both on the same text or items")
    return QualityGate(passed=all(check.passed for check in checks), checks=checks)


def _perplexity_check(found: Perplexity | None, source: Perplexity | None, limit: float) -> Iterator[GateCheck]:
    if found is None or source is None:
        return
    for name in ("rule", "text_sha256", "context_tokens", "bos_token", "text_tokens"):
        one, other = getattr(found, name), getattr(source, name)
        if one != other:
            raise ConfigError(f"perplexities with different {name} ({one!r}, source {other!r}) do not compare: score both the same way")
    ratio = found.value / source.value
    yield GateCheck(figure="perplexity", value=found.value, source_value=source.value, ratio=ratio, limit=limit, passed=ratio <= limit)


def _accuracy_checks(found: Quality, source: Quality, limit: float) -> Iterator[GateCheck]:
    if found.choices is not None and source.choices is not None:
        _require_same_items("choices", found.choices.items_sha256, source.choices.items_sha256)
        yield _accuracy_check("acc", found.choices.acc, source.choices.acc, limit)
        yield _accuracy_check("acc_norm", found.choices.acc_norm, source.choices.acc_norm, limit)
    if found.answers is not None and source.answers is not None:
        _require_same_items("questions", found.answers.items_sha256, source.answers.items_sha256)
        yield _accuracy_check("exact_match", found.answers.exact_match, source.answers.exact_match, limit)
        yield _accuracy_check("f1", found.answers.f1, source.answers.f1, limit)


def _require_same_items(what: str, one: str, other: str) -> None:
    if one != other:
        raise ConfigError(f"accuracies on different {what} (items {one[:12]} and {other[:12]}) do not compare: score both on the same file")


def _accuracy_check(figure: str, value: float, source: float, limit: float) -> GateCheck:
    if source == 0:
        raise ConfigError(f"the source's {figure} is 0, so no ratio to it exists: choose items that the source can answer")
    return GateCheck(figure=figure, value=value, source_value=source, ratio=value / source, limit=limit, passed=value / source >= limit)
