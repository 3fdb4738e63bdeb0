"""The figures by which models measured in turn are compared, run by run, and why two runs cannot be compared by one of them.

A model of one call has a latency and an energy. A language model has two answers on speed, prefill (time to first token) and decoding (time
per output token), and an energy per token; they compare only where both did the same work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.run_statistics import MATTERS_RATIO
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import FIGURES, Figure
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.quality.perplexity import Perplexity

# The figures of language models by what they are called in a comparison, in its order; the names are those of options.
TTFT, TPOT, TOKEN_ENERGY = "ttft", "tpot", "energy-output-token"
TEXT_FIGURES: tuple[Figure, ...] = tuple(entry for entry in FIGURES if entry.is_text_model_only)


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of those compared: the p50 of its runs with their median and its 95% interval (null below three runs), and the other figures.

    `gross_mj` is the median of the runs; `accuracy_value` (0..1) and `peak_mb` are those of the run that was scored, else of the newest.
    Of a language model `text_figures` are the medians of its figures, by their names in options, and `perplexity` that on the text.
    """

    name: str
    label: str
    p50_ms: tuple[float, ...]
    median_ms: float | None
    low_ms: float | None
    high_ms: float | None
    gross_mj: float | None
    energy_reason: str | None
    accuracy_metric: str | None
    accuracy_value: float | None
    accuracy_reason: str | None
    peak_mb: float | None
    text_figures: dict[str, float] = {}
    perplexity: Perplexity | None = None


@dataclass(frozen=True, slots=True)
class TurnFigure:
    """One figure: `name` and `unit` in a comparison, its value in a run (None: not measured); `choice` is its name in options."""

    name: str
    unit: str
    value: Callable[[RunRecord], float | None]
    choice: str = ""

    def why_unlike(self, first: RunRecord, other: RunRecord) -> str:
        """Return why the figure of `other` does not compare with that of `first`; empty where it does."""
        if first.generation is None or other.generation is None or not self.choice:
            return ""
        if first.scenario != other.scenario:
            return f"queries arrive in other ways ({other.scenario} against {first.scenario})"
        return _why_other_work(self.choice, first.generation, other.generation)

    def of_side(self, side: Side) -> float | None:
        """Return the median of its runs."""
        if self.choice:
            return side.text_figures.get(self.choice)
        return side.gross_mj if self.name == "energy" else side.median_ms

    def why_absent(self, sides: Sequence[Side], runs: Sequence[RunRecord]) -> str:
        """Return why no round has it on both sides."""
        for side, run in zip(sides, runs, strict=True):
            generation = run.generation
            if self.name == "energy" and side.energy_reason:
                return side.energy_reason
            if generation is not None and self.name == "energy" and generation.energy_reason:
                return generation.energy_reason
            if self.choice == TPOT and generation is not None and generation.tpot is None:
                return (
                    f"{side.name} generated a single token" if generation.output_tokens == 1 else f"every query of {side.name} ended early"
                )
        return "no round has it on both sides"


def p50_ms(run: RunRecord) -> float | None:
    """Return the median latency of a whole query."""
    return run.latency.p50_ms


def measured_only(value: Callable[[RunRecord], float | None]) -> Callable[[RunRecord], float | None]:
    """Return what reads an energy where it was measured: an estimate or a model of it decides nothing."""

    def of_run(run: RunRecord) -> float | None:
        return value(run) if run.energy is not None and energy_provenance(run) in ("measured", "replayed") else None

    return of_run


gross_mj = measured_only(lambda run: run.energy.gross_mj if run.energy else None)

_ONE_CALL = (TurnFigure("latency", "ms", p50_ms), TurnFigure("energy", "mJ", gross_mj))
# The latency of a whole query of a language model: it compares where decoding does.
QUERY = TurnFigure("latency", "ms", p50_ms, TPOT)


def turn_figures(cases: Sequence[Case]) -> tuple[TurnFigure, ...]:
    """Return the figures by which these cases are compared; raises ConfigError if some generate text and others do not."""
    generating = [case for case in cases if case.output_tokens is not None]
    if not generating:
        return _ONE_CALL
    if len(generating) < len(cases):
        single = next(case for case in cases if case.output_tokens is None)
        raise ConfigError(f"{generating[0].label} generates text and {single.label} does not: compare language models with language models")
    by_choice = {entry.choice: entry for entry in TEXT_FIGURES}
    return (
        TurnFigure(TTFT, "ms", by_choice[TTFT].value, TTFT),
        TurnFigure(TPOT, "ms", by_choice[TPOT].value, TPOT),
        TurnFigure("energy", "mJ/token", measured_only(by_choice[TOKEN_ENERGY].value), TOKEN_ENERGY),
    )


def _why_other_work(choice: str, first: Generation, other: Generation) -> str:
    prompts = first.prompt_tokens, other.prompt_tokens
    if None in prompts and prompts != (None, None):
        return "one of the servers does not state the tokens of its prompts"
    if prompts[0] is not None and prompts[1] is not None and abs(prompts[1] - prompts[0]) > MATTERS_RATIO * prompts[0]:
        return f"prompts of {prompts[1]} against {prompts[0]} tokens are other work"
    return "" if choice == TTFT else _why_other_output(choice, first, other)


def _why_other_output(choice: str, first: Generation, other: Generation) -> str:
    if first.output_tokens != other.output_tokens:
        return f"outputs of {other.output_tokens} against {first.output_tokens} tokens are other work"
    if "estimated" in (first.counts, other.counts):
        return "a server does not state how many tokens it generated"
    if choice == TOKEN_ENERGY and (first.ended_early or other.ended_early):
        return "some queries ended early, and share their prompt's energy among fewer tokens"
    return ""
