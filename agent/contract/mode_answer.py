"""The answer of runs of one case in several power modes, or with several governors or clocks, of one board.

At a rate it is the cheapest mode that holds it: one in which certainly less than 1% of the frames are missed (scenario `steady`), or no
queries are left in line (`poisson`). Else it is the fastest mode and that of the least energy. Energies rank only where one sensor measured
all of them (or one recording was replayed): none that was estimated or published. A difference is clear where its 95% interval
over runs leaves no change out; below three runs it is possible. A mode that missed frames in fewer than five bursts "held" the rate in its
runs: no bound tells how often comes what hardly came.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import NamedTuple, TypeAlias

import msgspec

from edgemeter.agent.base.decision import Decision, decide
from edgemeter.agent.base.figures import count, plain_digits, share
from edgemeter.agent.base.run_statistics import FEWEST, MATTERS_RATIO, interval_of_ratio, median_interval
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import figure
from edgemeter.agent.contract.load_sweep import OF_LOAD, TOO_SHORT, UNSOUND, limit_of
from edgemeter.agent.contract.mode_words import (
    FASTER,
    MORE,
    ModePoint,
    change_text,
    held_text,
    is_near,
    listed,
    missing_text,
)
from edgemeter.agent.contract.pooled_misses import MOST_MISSED_RATIO, pooled_misses
from edgemeter.agent.contract.record import RunRecord

OF_RATE = OF_LOAD | {"rate-not-held"}  # A run that violates these because the board is too slow for the rate is an answer.
WOKE_LATE = "schedule-not-kept"  # The rule for runs in which Edgemeter itself woke up late.
_RANKED = ("measured", "replayed")
# A power mode, and what was set beside it.
Mode: TypeAlias = tuple[str | None, str]


class ModeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The modes of one case on one board, in the order of measuring, and the answer in one sentence."""

    device: str
    model: str
    settings: str
    rate_per_s: float | None
    points: tuple[ModePoint, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class _ModeFigures:
    """How runs are compared: the figures of speed and energy, whether more of the first is faster, and both in words."""

    speed: str
    is_rate: bool
    speed_text: str
    per: str
    energy: str = "energy_gross_mj"


class _Ranking(NamedTuple):
    """The best mode and those not clearly apart from it; without enough runs it `is_possible` that another one is better."""

    modes: list[Mode]
    is_possible: bool

    def called(self, superlative: str) -> str:
        """Return the superlative, or that it is one possibly."""
        return f"possibly {superlative}" if self.is_possible else superlative


_LATENCY = _ModeFigures("latency_p50_ms", False, "p50 {} ms", "inference")
_FIGURES: Mapping[str, _ModeFigures] = {
    "steady": _ModeFigures("latency_p50_ms", False, "p50 {} ms", "frame"),
    "offline": _ModeFigures("throughput_per_s", True, "{} a second", "inference"),
}
_TEXT = _ModeFigures("generation_decode_tokens_per_s", True, "{} tokens/s", "output token", "generation_energy_output_token_gross_mj")


def mode_answers(runs: Iterable[RunRecord]) -> list[ModeAnswer]:
    """Return the answers that the runs give: one for each case that was measured in two modes and more."""
    groups: dict[CaseKey, dict[Mode, list[RunRecord]]] = {}
    for run in runs:
        key = key_of(run)
        mode = key.power_mode, key.operating_point
        groups.setdefault(without_mode(key), {}).setdefault(mode, []).append(run)
    answers = [_Modes(key, modes) for key, modes in groups.items() if len(modes) > 1]
    return [modes.answer() for modes in answers if any(modes.counted.values())]


def without_mode(key: CaseKey) -> CaseKey:
    """Return what cases share that differ in power mode, governor and clocks alone."""
    return msgspec.structs.replace(key, power_mode=None, operating_point="")


def mode_text(run: RunRecord) -> str:
    """Return the power mode, governor and highest clocks of a run in words; empty where there is no mode and none was set."""
    key = key_of(run)
    return ", ".join(filter(None, (_mode_name(key.power_mode), key.operating_point)))


def _mode_name(power_mode: str | None) -> str:
    """Return the name without the number before it: `25W` of `1 25W`."""
    number, _, name = (power_mode or "").partition(" ")
    return name if name and number.isdecimal() else power_mode or ""


def _counts(run: RunRecord) -> bool:
    rules = set(run.verdict.rules)
    return run.verdict.state != "invalid" or (bool(rules & OF_RATE) and not rules & UNSOUND)


class _Modes:
    """The runs of one case by mode: its power mode and what was set beside it."""

    def __init__(self, key: CaseKey, modes: Mapping[Mode, Sequence[RunRecord]]) -> None:
        self._key = key
        self.counted = {mode: list(filter(_counts, runs)) for mode, runs in modes.items()}
        first = next(iter(modes.values()))[0]
        self._figures = _TEXT if first.generation else _FIGURES.get(key.scenario, _LATENCY)
        self._first, self._all = first, modes
        self._rate = first.steady.rate_per_s if first.steady else first.load.target_per_s if first.load else None
        self._noun = "mode" if len({clocks for _, clocks in modes}) == 1 else "setting"
        self._names = self._named()
        self._missed = {mode: pooled_misses((run.steady for run in runs), MOST_MISSED_RATIO) for mode, runs in self.counted.items()}
        self._no_joules = self._why_no_joules()
        self._has_joules = self._no_joules is None
        self.points = {mode: self._point(mode) for mode in modes}

    def _named(self) -> dict[Mode, str]:
        """Return what the modes are called: by the parts in which they differ."""
        modes, clocks = ({mode[part] for mode in self._all} for part in (0, 1))
        names = {}
        for mode, clock in self._all:
            parts = (_mode_name(mode) or "no power mode") if len(modes) > 1 else "", (clock or "as it was") if len(clocks) > 1 else ""
            names[mode, clock] = ", ".join(filter(None, parts))
        return names

    def _why_no_joules(self) -> str | None:
        """Return why energies do not rank: empty where there are none, None where they do."""
        by_mode = {mode: [run for run in runs if self._energy_of(run) is not None] for mode, runs in self.counted.items()}
        present = [(energy_provenance(run), run.energy) for runs in by_mode.values() for run in runs if run.energy is not None]
        if not present:
            return ""
        if unranked := [provenance for provenance, _ in present if provenance not in _RANKED]:
            return f"the energy is {unranked[0] or 'not stated to be measured'}, and ranks nothing"
        needing = [mode for mode, runs in self.counted.items() if runs and self._holds(mode) is not False]
        if without := [self._names[mode] for mode in needing if not by_mode[mode]]:
            nothing = "no mode is named cheapest" if self._rate is not None else "none is ranked"
            return f"{listed(without)} {'has' if len(without) == 1 else 'have'} no energy, so {nothing}"
        if wrong := [name for mode, name in self._names.items() if any(not self._is_energy_positive(run) for run in by_mode[mode])]:
            return f"an energy of {listed(wrong)} is not above 0 mJ (is its sensor reversed?), so none is ranked"
        kinds = {(provenance, energy.sensor, energy.scope) for provenance, energy in present}
        return None if len(kinds) == 1 else "the energies are not of one sensor, and are not ranked"

    def _energy_of(self, run: RunRecord) -> float | None:
        return figure(self._figures.energy).value(run) if run.energy else None

    def _is_energy_positive(self, run: RunRecord) -> bool:
        names = (self._figures.energy, *(("energy_mean_power_w",) if self._rate is not None else ()))
        return all((figure(name).value(run) or 0.0) > 0 for name in names)

    def _values(self, mode: Mode, name: str) -> list[float]:
        values = [figure(name).value(run) for run in self.counted[mode]]
        return [value for value in values if value is not None and value > 0]

    def _middle(self, mode: Mode, name: str) -> float | None:
        values = self._values(mode, name)
        return median(values) if values else None

    def _point(self, mode: Mode) -> ModePoint:
        runs, invalid = self.counted[mode], [run for run in self._all[mode] if not _counts(run)]
        limits = self._limits(mode)
        return ModePoint(
            name=self._names[mode],
            power_mode=mode[0],
            clocks=mode[1],
            runs=len(runs),
            left_out=len(invalid),
            suspect=sum(bool(_doubtful(run)) for run in runs),
            speed=self._middle(mode, self._figures.speed),
            energy_mj=self._middle(mode, self._figures.energy) if self._has_joules else None,
            power_w=self._middle(mode, "energy_mean_power_w") if self._has_joules else None,
            holds=self._holds(mode),
            limited_by=limits[0] if limits else None,
            invalid=", ".join(_rules_of(run.verdict.rules for run in invalid)) or None,
            missed=self._missed[mode],
            woke_late=sum(bool(_of_wake_ups(run) or (_misses(run) and WOKE_LATE in run.verdict.rules)) for run in runs),
        )

    def _limits(self, mode: Mode) -> list[str]:
        is_of_queries = self._rate is not None and not self._missed[mode]
        return [limit for run in self.counted[mode] if (limit := limit_of(run))] if is_of_queries else []

    def _holds(self, mode: Mode) -> bool | None:
        """Return whether a mode holds the rate; what Edgemeter itself made late does not mean that it does not."""
        missed, limits = self._missed[mode], self._limits(mode)
        if missed is None:
            return None if self._rate is None or TOO_SHORT in limits else not limits
        holds, of_wake_ups = missed.is_below(MOST_MISSED_RATIO), sum(map(_of_wake_ups, self.counted[mode]))
        return None if holds is False and missed.ratio - of_wake_ups / missed.frames < MOST_MISSED_RATIO else holds

    def answer(self) -> ModeAnswer:
        """Return the answer."""
        key, generation, no_joules = self._key, self._first.generation, self._no_joules or ""
        claims, doubts = self._claims(), self._doubts()
        # Without a cheapest mode the question at a rate is another one.
        texts = [*claims, *doubts, no_joules] if self._rate is None else [no_joules, *claims, *doubts]
        return ModeAnswer(
            device=key.device,
            model=f"{key.model} {generation.lengths}" if generation else key.model,
            settings=", ".join(filter(None, (key.precision, key.runtime, key.settings))),
            rate_per_s=self._rate,
            points=tuple(self.points.values()),
            summary="; ".join(filter(None, texts)),
        )

    def _claims(self) -> list[str]:
        counted = {mode: point for mode, point in self.points.items() if point.runs}
        if self._rate is None:
            return self._closed_loop(counted)
        steady, rate = self._first.steady, f"{plain_digits(self._rate, 3)} {'fps' if self._first.steady else 'queries a second'}"
        if steady and not math.isclose(steady.deadline_ms, 1e3 / steady.rate_per_s, rel_tol=1e-3):
            rate += f" within {plain_digits(steady.deadline_ms, 3)} ms"
        holding = {mode: point for mode, point in counted.items() if point.holds}
        failing = [point for point in counted.values() if not point.holds]
        if not holding:
            ordered = sorted(failing, key=lambda point: point.missed.ratio if point.missed else 0.0)
            return [f"no {self._noun} surely holds {rate}: " + ", ".join(map(missing_text, ordered))]
        ranking = self._best(holding, self._ranked_by)
        better = {mode: self._better(ranking.modes[0], mode) for mode in counted if mode not in holding and ranking.modes}
        further = [missing_text(counted[mode], " hold it") for mode in counted if mode not in holding and not better.get(mode)]
        if not ranking.modes:
            return [f"{listed([point.name for point in holding.values()])} {held_text([*holding.values()], rate)}", *further]
        first = [holding[mode] for mode in ranking.modes]
        unranked = [] if self._has_joules else [point for point in holding.values() if point.speed is None]
        called = ranking.called("cheapest" if self._has_joules else "fastest")
        return [
            self._head(called, f" that {held_text(first, rate)}", [f"{point.name} ({self._price(point)})" for point in first]),
            *(missing_text(counted[mode], " hold it", text) for mode, text in better.items() if text),
            *(self._against(ranking.modes[0], mode) for mode in holding if mode != ranking.modes[0]),
            *(f"{point.name} {held_text([point], 'it')}, too" for point in unranked),
            *further,
        ]

    def _closed_loop(self, counted: Mapping[Mode, ModePoint]) -> list[str]:
        fastest = self._best(counted, self._figures.speed)
        speeds = [f"{counted[mode].name} ({self._speed_text(counted[mode])})" for mode in fastest.modes]
        heads = [self._head(fastest.called("fastest"), "", speeds)] if speeds else [f"no {self._noun} has a speed that so few queries bear"]
        base = fastest.modes[:1]
        if self._has_joules:
            cheapest = self._best(counted, self._figures.energy)
            energies = [f"{counted[mode].name} ({plain_digits(counted[mode].energy_mj)} mJ)" for mode in cheapest.modes]
            least, base = f"least energy per {self._figures.per}", cheapest.modes[:1]
            heads.append(self._head(cheapest.called(least), "", energies))
            if fastest == cheapest and len(speeds) == 1:
                both = f"{speeds[0][:-1]}, {plain_digits(counted[base[0]].energy_mj)} mJ)"
                heads = [self._head(fastest.called(f"fastest, with the {least}"), "", [both])]
        return [*heads, *(self._against(first, mode) for first in base for mode in counted if mode != first)]

    def _head(self, superlative: str, of: str, texts: Sequence[str]) -> str:
        noun = f" {self._noun}{'s' * (len(texts) > 1)}{of}" if of else ""
        apart = ", not clearly apart" if len(texts) > 1 else ""
        return f"{superlative}{noun}{apart}: {', '.join(texts)}"

    def _best(self, points: Iterable[Mode], name: str) -> _Ranking:
        """Return the best mode by a figure, with those that are not clearly worse; no mode where none has it."""
        is_more_better = name == self._figures.speed and self._figures.is_rate
        values = {mode: value for mode in points if (value := self._middle(mode, name)) is not None}
        ordered = sorted(values, key=lambda mode: values[mode], reverse=is_more_better)
        worse = "lower" if is_more_better else "higher"
        decisions = {mode: self._decided(ordered[0], mode, name) for mode in ordered[1:]}
        possible = [mode for mode, decision in decisions.items() if decision.outcome == "not judged" and not is_near(decision)]
        rivals = [mode for mode, decision in decisions.items() if decision.outcome != worse and mode not in possible]
        return _Ranking([*ordered[:1], *rivals], bool(possible))

    def _decided(self, base: Mode, mode: Mode, name: str) -> Decision:
        """Return the decision on the figure of `mode` against that of `base`."""
        values, of_base = self._values(mode, name), self._values(base, name)
        middle, middle_of_base = median(values), median(of_base)
        interval, interval_of_base = median_interval(values), median_interval(of_base)
        bounds = interval_of_ratio(middle, interval, middle_of_base, interval_of_base) if interval and interval_of_base else None
        return decide(middle / middle_of_base, bounds, MATTERS_RATIO)

    def _speed_up(self, base: Mode, mode: Mode) -> Decision:
        """Return the decision on the speed of `mode` against that of `base`: a rate is high where a time is low."""
        return self._decided(base, mode, self._figures.speed) if self._figures.is_rate else self._decided(mode, base, self._figures.speed)

    def _against(self, best: Mode, mode: Mode) -> str:
        """Return how much faster than `best` a mode is and how much more it costs; of a slower one, how much faster than it `best` is."""
        texts, ends = [], ("", "")
        if self.points[best].speed is not None and self.points[mode].speed is not None:
            if (self._speed_up(best, mode).value or 1.0) < 1:
                best, mode = mode, best
                ends = f" as {self.points[best].name}", f" than {self.points[best].name}"
            texts.append(f"is {change_text(self._speed_up(best, mode), FASTER, ends)}")
        if self._has_joules:
            per = f" per {self._figures.per}"
            texts.append(f"costs {change_text(self._decided(best, mode, self._figures.energy), MORE, (per, per))}")
        return f"{self.points[mode].name} {' and '.join(texts)}" if texts else ""

    def _better(self, best: Mode, mode: Mode) -> str:
        """Return that a mode which possibly holds the rate costs less than the best that does, or is faster; empty if not."""
        if self.points[mode].holds is False or not self._values(mode, self._ranked_by):
            return ""
        decision = self._decided(best, mode, self._ranked_by)
        is_higher = (decision.value or 1.0) > 1
        if is_near(decision) or is_higher is (self._has_joules or not self._figures.is_rate):
            return ""
        would = "would" if decision.outcome in ("lower", "higher") else "would possibly"
        return f"{would} {'cost less' if self._has_joules else 'be faster'} ({self._cost(self.points[mode])}) and "

    @property
    def _ranked_by(self) -> str:
        """The figure of the best mode that holds a rate."""
        return "energy_mean_power_w" if self._has_joules else self._figures.speed

    def _cost(self, point: ModePoint) -> str:
        return f"{plain_digits(point.power_w, 3)} J/s" if self._has_joules else self._speed_text(point)

    def _price(self, point: ModePoint) -> str:
        missed = f", {share(point.missed.ratio)} missed" if point.missed and point.missed.ratio else ""
        return f"{self._cost(point)}{missed}"

    def _speed_text(self, point: ModePoint) -> str:
        return self._figures.speed_text.format(plain_digits(point.speed, 3))

    def _doubts(self) -> list[str]:
        counted = [point for point in self.points.values() if point.runs]
        doubts = [f"{point.name} has no valid run ({point.invalid})" for point in self.points.values() if not point.runs]
        doubts += [f"{count(point.left_out, 'run')} of {point.name} left out ({point.invalid})" for point in counted if point.left_out]
        if timeless := [point.name for point in counted if point.speed is None]:
            doubts.append(f"{listed(timeless)} {'has' if len(timeless) == 1 else 'have'} no {'rate' if self._figures.is_rate else 'p50'}")
        fewest = min(counted, key=lambda point: point.runs)
        of_mode = "each" if len({point.runs for point in self.points.values()}) == 1 else fewest.name
        doubts += [f"{count(fewest.runs, 'run')} of {of_mode}: {FEWEST} give an interval"] if fewest.runs < FEWEST else []
        if self._has_joules:
            energies = {mode: len(self._values(mode, self._figures.energy)) for mode in self._all}
            doubts += [
                f"{energies[mode]} of {count(point.runs, 'run')} of {point.name} with an energy: {FEWEST} give an interval"
                for mode, point in self.points.items()
                if energies[mode] < min(point.runs, FEWEST)
            ]
        return [*doubts, *self._suspects()]

    def _suspects(self) -> Iterator[str]:
        """Yield the rules for which runs are suspect: those of every mode once."""
        rules = {mode: [_doubtful(run) for run in runs] for mode, runs in self.counted.items() if runs}
        shared = [rule for rule in _rules_of(chain(*rules.values())) if all(rule in chain(*each) for each in rules.values())]
        total, number = sum(map(len, rules.values())), sum(bool(set(each) & set(shared)) for each in chain(*rules.values()))
        if len(rules) > 1 and shared:
            yield f"{f'all {total}' if number == total else f'{number} of {total}'} runs suspect ({', '.join(shared)})"
        for mode, each in rules.items():
            further = [run_rules for run in each if (run_rules := [rule for rule in run if len(rules) == 1 or rule not in shared])]
            if further:
                yield f"{count(len(further), 'run')} of {self._names[mode]} suspect ({', '.join(_rules_of(further))})"


def _doubtful(run: RunRecord) -> list[str]:
    """Return the violated rules that make a run doubtful, of which a rate that is too high is none."""
    return [rule for rule in run.verdict.rules if rule not in OF_RATE]


def _rules_of(of_runs: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(of_runs)))


def _misses(run: RunRecord) -> int:
    return run.steady.dropped + run.steady.late if run.steady else 0


def _of_wake_ups(run: RunRecord) -> int:
    """Return how many frames were late because Edgemeter woke up late."""
    return run.steady.woke_late if run.steady else 0
