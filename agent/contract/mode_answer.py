"""Which power mode or governor of one board to take: its modes as a table with marks, from the runs of one case.

At a rate the modes that meet the deadline are ranked, by mean power and by latency; else all, by energy and by speed. All pairs of modes
and both figures are decided together, so that in 95 of 100 tables no mode is marked behind one that it equals. Energies rank only where
one sensor measured all of them (or one recording was replayed).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Literal, TypeAlias

import msgspec

from edgemeter.agent.base.decision import MATTERS_RATIO, told_apart
from edgemeter.agent.base.evidence import interval_over_runs, middle_of
from edgemeter.agent.base.figures import plain_digits, share, with_interval
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import figure
from edgemeter.agent.contract.held_load import OF_LOAD, UNSOUND, is_held
from edgemeter.agent.contract.pooled_misses import pooled_misses
from edgemeter.agent.contract.record import RunRecord

WOKE_LATE = "schedule-not-kept"  # The rule for runs in which Edgemeter itself woke up late.
MEETS_DEADLINE = {True: "meets the deadline", False: "misses the deadline", None: "deadline inconclusive"}
# The mark of the best mode by speed, and by energy.
BEST = ("fastest", "most frugal")
Unranked = Literal["no energy", "not measured", "several sensors", "missing in a mode", "not above 0 mJ"]
WORDS = ("mode", "marks")  # The columns of the table that hold no numbers.
_POWER = "energy_mean_power_w"
_Modes: TypeAlias = Mapping[str, Sequence[RunRecord]]


class ModeFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a mode: the geometric mean over its runs with its 95% interval, None where there is none."""

    value: float
    low: float | None
    high: float | None

    @property
    def text(self) -> str:
        """The figure for people: `40 ± 4%`."""
        text = plain_digits(self.value, 3)
        return text if self.low is None or self.high is None else with_interval(text, self.value, self.low, self.high)


class ModeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A mode: figures over its `runs` that count, and its marks."""

    name: str
    runs: int
    speed: ModeFigure | None
    energy: ModeFigure | None
    power_w: ModeFigure | None
    missed_ratio: float | None
    marks: tuple[str, ...]


class ModeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The modes of one case on one board, in the order of the runs; `speed` and `energy` name their figures."""

    title: str
    speed: str
    energy: str
    energy_unranked: Unranked | None
    modes: tuple[ModeRow, ...]

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The cells of the table by heading."""
        rows = self.modes
        unranked = f" (not ranked: {self.energy_unranked})" if self.energy_unranked else ""
        numbers = {
            figure(self.speed).heading: [row.speed for row in rows],
            f"{figure(self.energy).heading}{unranked}": [row.energy for row in rows],
            "W": [row.power_w for row in rows],
        }
        return {
            "mode": tuple(row.name for row in rows),
            **{heading: tuple(cell.text if cell else "-" for cell in cells) for heading, cells in numbers.items()},
            "missed": tuple(share(row.missed_ratio) for row in rows),
            "runs": tuple(f"{row.runs}" for row in rows),
            "marks": tuple(", ".join(row.marks) for row in rows),
        }


def mode_answers(runs: Iterable[RunRecord]) -> list[ModeAnswer]:
    """Return the answers that the runs give: one for each case that was measured in two modes and more."""
    cases: dict[CaseKey, dict[str, list[RunRecord]]] = {}
    for run in runs:
        cases.setdefault(without_mode(key_of(run)), {}).setdefault(mode_text(run) or "as it was", []).append(run)
    return [_answer(key, modes) for key, modes in cases.items() if len(modes) > 1 and any(map(_counts, chain(*modes.values())))]


def without_mode(key: CaseKey) -> CaseKey:
    """Return what cases share that differ in power mode and governor alone."""
    return msgspec.structs.replace(key, power_mode=None, operating_point="")


def mode_text(run: RunRecord) -> str:
    """Return the power mode, without its number, and the governor that was set: `25W, governor powersave`; empty without either."""
    key = key_of(run)
    number, _, name = (key.power_mode or "").partition(" ")
    mode = name if name and number.isdecimal() else key.power_mode
    return ", ".join(filter(None, (mode, key.operating_point)))


def _counts(run: RunRecord) -> bool:
    rules = set(run.verdict.rules)
    return run.verdict.state != "invalid" or (bool(rules & OF_LOAD) and not rules & UNSOUND)


def _answer(key: CaseKey, modes: _Modes) -> ModeAnswer:
    counted = {mode: list(filter(_counts, runs)) for mode, runs in modes.items()}
    first = next(iter(modes.values()))[0]
    speed, energy = "throughput_per_s" if key.scenario == "offline" else "latency_p50_ms", "energy_gross_mj"
    if first.generation:
        speed, energy = "generation_decode_tokens_per_s", "generation_energy_output_token_gross_mj"
    rate_per_s = first.steady.rate_per_s if first.steady else key.target_per_s
    ranked, cost, marks = {mode: runs for mode, runs in counted.items() if runs}, energy, {}
    if rate_per_s is not None:
        meets = {mode: _meets_deadline(runs) for mode, runs in ranked.items()}
        marks = {mode: (MEETS_DEADLINE[meets[mode]],) for mode in ranked}
        ranked, cost = {mode: runs for mode, runs in ranked.items() if meets[mode]}, _POWER
    unranked = _why_unranked(counted, ranked, (energy, cost))
    of_rank = _marks(ranked, (speed,) if unranked else (speed, cost))
    model = f"{key.model} {first.generation.lengths}" if first.generation else key.model
    rate = "" if rate_per_s is None else f"{plain_digits(rate_per_s)} a second"
    return ModeAnswer(
        title=f"{', '.join(filter(None, (model, key.precision, key.runtime, key.settings, rate)))} on {key.device}",
        speed=speed,
        energy=energy,
        energy_unranked=unranked,
        modes=tuple(
            ModeRow(
                name=mode,
                runs=len(runs),
                speed=_figure(runs, speed),
                energy=_figure(runs, energy),
                power_w=_figure(runs, _POWER),
                missed_ratio=missed.ratio if (missed := pooled_misses(run.steady for run in runs)) else None,
                marks=(*marks.get(mode, ()), *of_rank.get(mode, ())),
            )
            for mode, runs in counted.items()
        ),
    )


def _meets_deadline(runs: Sequence[RunRecord]) -> bool | None:
    """Return whether a mode holds the rate, None where that is not clear: misses that Edgemeter itself may have made are no answer."""
    if missed := pooled_misses(run.steady for run in runs):
        woke_late = any(run.steady and run.steady.missed_ratio > 0 and WOKE_LATE in run.verdict.rules for run in runs)
        return None if missed.is_held is False and woke_late else missed.is_held
    are_held = [is_held(run) for run in runs]
    return None if None in are_held else all(are_held)


def _why_unranked(counted: _Modes, ranked: _Modes, figures: Sequence[str]) -> Unranked | None:
    """Return why energies do not rank, None where they do."""
    runs = [run for run in chain(*counted.values()) if run.energy]
    kinds = {(energy_provenance(run), run.energy.sensor, run.energy.scope) for run in runs if run.energy}
    if not kinds:
        return "no energy"
    if any(provenance not in ("measured", "replayed") for provenance, _, _ in kinds):
        return "not measured"
    if len(kinds) > 1:
        return "several sensors"
    if min(chain(*(_values(runs, name) for name in figures)), default=1.0) <= 0:
        return "not above 0 mJ"
    return None if all(_values(of_mode, name) for of_mode in ranked.values() for name in figures) else "missing in a mode"


def _marks(ranked: _Modes, figures: Sequence[str]) -> dict[str, list[str]]:
    """Return the marks of the best mode by each figure, and of the modes that are not told apart from it."""
    marks: dict[str, list[str]] = {mode: [] for mode in ranked}
    values = {(name, mode): _values(runs, name) for name in figures for mode, runs in ranked.items()}
    pairs = {frozenset(pair): (values[pair[0]], values[pair[1]]) for pair in combinations(values, 2) if pair[0][0] == pair[1][0]}
    apart = told_apart(pairs, MATTERS_RATIO)
    for name, best_mark in zip(figures, BEST, strict=False):
        middles = {mode: middle_of(of_mode) for mode in ranked if (of_mode := values[name, mode])}
        best = (max if figure(name).better == "higher" else min)(middles, key=lambda mode: middles[mode], default=None)
        for mode in middles:
            if mode == best:
                marks[mode].append(best_mark)
            elif frozenset({(name, best), (name, mode)}) not in apart:
                marks[mode].append(f"not told apart from the {best_mark}")
    return marks


def _values(runs: Sequence[RunRecord], name: str) -> list[float]:
    return [value for run in runs if (value := figure(name).value(run)) is not None]


def _figure(runs: Sequence[RunRecord], name: str) -> ModeFigure | None:
    if not (values := _values(runs, name)):
        return None
    _, low, high = interval_over_runs(values, runs[0].environment.session_sd) or (None, None, None)
    return ModeFigure(value=middle_of(values), low=low, high=high)
