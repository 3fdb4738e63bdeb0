"""The quality gate."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.gate import Quality, quality_gate
from edgemeter.agent.quality.multiple_choice import ChoiceItem, accuracies
from edgemeter.agent.quality.perplexity import Perplexity
from edgemeter.agent.quality.short_answers import Question, score_answers
from tests.fixtures.rows import table_row

PERPLEXITY = Perplexity(
    value=10.0,
    standard_error=0.1,
    bits_per_byte=1.0,
    rule="llama-perplexity",
    context_tokens=512,
    bos_token=1,
    chunks=9,
    counted_tokens=2295,
    text_tokens=5000,
    text_sha256="0" * 64,
)


def of(value):
    """Return the quality of a file with this perplexity."""
    return Quality(perplexity=msgspec.structs.replace(PERPLEXITY, value=value))


def choices(right, count=20):
    """Return the scores of so many right answers."""
    items = [ChoiceItem(id=str(number), prompt="p", choices=("a", "b"), answer=0) for number in range(count)]
    return accuracies(items, [[-1.0, -2.0] if number < right else [-2.0, -1.0] for number in range(count)])


def test_five_percent_more_perplexity_passes_and_more_fails():
    """The limit itself passes."""
    assert quality_gate(of(10.5), of(10.0)).passed
    assert quality_gate(of(9.0), of(10.0)).passed
    failed = quality_gate(of(10.51), of(10.0))
    assert not failed.passed
    assert failed.checks[0].sentence() == "perplexity 10.51 is 1.0510 of the source's 10: fails (at most 1.05)"


def test_nine_tenths_of_the_accuracy_pass_and_less_fails():
    """18 of 20 against 20 of 20 is just enough."""
    assert quality_gate(Quality(choices=choices(18)), Quality(choices=choices(20))).passed
    assert not quality_gate(Quality(choices=choices(17)), Quality(choices=choices(20))).passed


def test_every_figure_has_to_pass():
    """A good perplexity does not make up for wrong answers."""
    question = [Question(id="1", prompt="?", answers=("x",)), Question(id="2", prompt="?", answers=("y",))]
    right, half = score_answers(question, ["x", "y"]), score_answers(question, ["x", "z"])
    gate = quality_gate(Quality(perplexity=PERPLEXITY, answers=half), Quality(perplexity=PERPLEXITY, answers=right))
    assert [(check.figure, check.passed) for check in gate.checks] == [("perplexity", True), ("exact_match", False), ("f1", False)]
    assert not gate.passed


def test_figures_of_other_rules_or_texts_do_not_compare():
    """The error names what differs."""
    for change in [{"context_tokens": 256}, {"text_sha256": "1" * 64}, {"rule": "other"}, {"text_tokens": 5001}]:
        other = Quality(perplexity=msgspec.structs.replace(PERPLEXITY, **change))
        with table_row(change), pytest.raises(ConfigError, match=f"different {next(iter(change))}"):
            quality_gate(other, of(10.0))


def test_nothing_in_common_is_an_error():
    """A gate never passes for want of figures, nor on other items, nor against a source that knows nothing."""
    with pytest.raises(ConfigError, match="no quality figure in common"):
        quality_gate(of(10.0), Quality(choices=choices(10)))
    with pytest.raises(ConfigError, match="different choices"):
        quality_gate(Quality(choices=choices(10)), Quality(choices=choices(10, 21)))
    with pytest.raises(ConfigError, match="source's acc is 0"):
        quality_gate(Quality(choices=choices(10)), Quality(choices=choices(0)))
