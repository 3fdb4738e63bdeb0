"""The answer of runs of one case in several power modes, or with several governors or clocks, of one board.

At a rate it is the cheapest mode that holds it: one in which certainly less than 1% of the frames are missed (scenario `steady`), or no
queries are left in line (`poisson`). Else it is the fastest mode and that of the least energy. Energies rank only where one sensor measured
all of them (or one recording was replayed): none that was estimated, modelled or published. A difference is clear where its 95% interval
over runs leaves no change out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import msgspec

from edgemeter.agent.base.decision import Decision, decide, percent
from edgemeter.agent.base.figures import count, plain_digits, significant, span
from edgemeter.agent.base.run_statistics import FEWEST, MATTERS_RATIO, interval_of_ratio, median_interval
from edgemeter.agent.base.statistics import wilson_interval
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import figure
from edgemeter.agent.contract.load_sweep import OF_LOAD, TOO_SHORT, UNSOUND, limit_of
from edgemeter.agent.contract.record import RunRecord

MOST_MISSED_RATIO = 0.01
OF_RATE = OF_LOAD | {"rate-not-held"}  # A run that violates these because the board is too slow for the rate is an answer.
_RANKED = ("measured", "replayed")
# A power mode, and what was set beside it.
Mode: TypeAlias = tuple[str | None, str]


class ModePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: medians over its `runs` that count, null where they have none. `holds` is null where it is not clear, or nothing is held.

    `speed` is the latency in ms, of `offline` samples a second, of text tokens a second; `energy_mj` is of an inference, a frame or an
    output token, and null where the energies do not rank. `limited_by` is why a rate of queries is not held, `invalid` why no run counts.
    """

    name: str
    power_mode: str | None
    clocks: str
    runs: int
    suspect: int
    speed: float | None
    energy_mj: float | None
    power_w: float | None
    frames: int = 0
    missed_ratio: float | None = None
    missed_high_ratio: float | None = None
    holds: bool | None = None
    limited_by: str | None = None
    invalid: str | None = None


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
        self._has_joules = self._why_no_joules() is None
        self._noun = "mode" if len({clocks for _, clocks in modes}) == 1 else "setting"
        self._names = self._named()
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
        runs = [run for counted in self.counted.values() for run in counted]
        has_figure = [run for run in runs if figure(self._figures.energy).value(run) is not None]
        present = [(energy_provenance(run), run.energy) for run in has_figure if run.energy is not None]
        if not present:
            return ""
        if unranked := next((provenance for provenance, _ in present if provenance not in _RANKED), None):
            return f"the energy is {unranked}, and ranks nothing"
        if len(present) < len(runs):
            return "not every run has an energy, so none is ranked"
        kinds = {(provenance, energy.sensor, energy.scope) for provenance, energy in present}
        return None if len(kinds) == 1 else "the energies are not of one sensor, and are not ranked"

    def _values(self, mode: Mode, name: str) -> list[float]:
        values = [figure(name).value(run) for run in self.counted[mode]]
        return [value for value in values if value is not None and value > 0]

    def _middle(self, mode: Mode, name: str) -> float | None:
        values = self._values(mode, name)
        return median(values) if values else None

    def _point(self, mode: Mode) -> ModePoint:
        runs = self.counted[mode]
        frames, missed_ratio, low, high = _missed(runs)
        limits = [] if frames or self._rate is None else [limit for run in runs if (limit := limit_of(run))]
        if frames:
            is_clear = high is not None and low is not None and (high < MOST_MISSED_RATIO or low >= MOST_MISSED_RATIO)
            holds = high is not None and high < MOST_MISSED_RATIO if is_clear else None
        else:
            holds = None if self._rate is None or TOO_SHORT in limits else not limits
        return ModePoint(
            name=self._names[mode],
            power_mode=mode[0],
            clocks=mode[1],
            runs=len(runs),
            suspect=sum(bool(set(run.verdict.rules) - OF_RATE) for run in runs),
            speed=self._middle(mode, self._figures.speed),
            energy_mj=self._middle(mode, self._figures.energy) if self._has_joules else None,
            power_w=self._middle(mode, "energy_mean_power_w") if self._has_joules else None,
            frames=frames,
            missed_ratio=missed_ratio,
            missed_high_ratio=high,
            holds=holds,
            limited_by=limits[0] if limits else None,
            invalid=None if runs else ", ".join(dict.fromkeys(rule for run in self._all[mode] for rule in run.verdict.rules)),
        )

    def answer(self) -> ModeAnswer:
        """Return the answer."""
        key, generation = self._key, self._first.generation
        return ModeAnswer(
            device=key.device,
            model=f"{key.model} {generation.lengths}" if generation else key.model,
            settings=", ".join(filter(None, (key.precision, key.runtime, key.settings))),
            rate_per_s=self._rate,
            points=tuple(self.points.values()),
            summary="; ".join(filter(None, (*self._claims(), *self._doubts()))),
        )

    def _claims(self) -> list[str]:
        sound = {mode: point for mode, point in self.points.items() if point.runs and point.speed is not None}
        if self._rate is None:
            return self._closed_loop(sound)
        steady, rate = self._first.steady, f"{plain_digits(self._rate, 3)} {'fps' if self._first.steady else 'queries a second'}"
        if steady and not math.isclose(steady.deadline_ms, 1e3 / steady.rate_per_s, rel_tol=1e-3):
            rate += f" within {plain_digits(steady.deadline_ms, 3)} ms"
        holding = {mode: point for mode, point in sound.items() if point.holds}
        failing = [point for point in self.points.values() if point.runs and not point.holds]
        if not holding:
            ordered = sorted(failing, key=lambda point: point.missed_ratio or 0.0)
            return [f"no {self._noun} surely holds {rate}: " + ", ".join(map(_missing, ordered))]
        cost = "energy_mean_power_w" if self._has_joules else self._figures.speed
        best, *rivals = self._best(holding, cost)
        costs = {mode: f"{holding[mode].name} ({self._price(holding[mode])})" for mode in (best, *rivals)}
        head = self._head("cheapest" if self._has_joules else "fastest", f" that hold{'' if rivals else 's'} {rate}", list(costs.values()))
        return [head, *(self._against(best, mode) for mode in holding if mode != best), *(_missing(point, " hold it") for point in failing)]

    def _closed_loop(self, sound: Mapping[Mode, ModePoint]) -> list[str]:
        if not sound:
            return [f"no {self._noun} has queries enough for a speed: measure longer"]
        fastest, *fast_rivals = self._best(sound, self._figures.speed)
        speeds = [f"{sound[mode].name} ({self._speed_text(sound[mode])})" for mode in (fastest, *fast_rivals)]
        heads, base = [self._head("fastest", "", speeds)], fastest
        if self._has_joules:
            base, *rivals = self._best(sound, self._figures.energy)
            energies = [f"{sound[mode].name} ({plain_digits(sound[mode].energy_mj)} mJ)" for mode in (base, *rivals)]
            least = f"least energy per {self._figures.per}"
            heads.append(self._head(least, "", energies))
            if base == fastest and not (rivals or fast_rivals):
                heads = [f"fastest, with the {least}: {speeds[0][:-1]}, {plain_digits(sound[base].energy_mj)} mJ)"]
        return [*heads, *(self._against(base, mode) for mode in sound if mode != base)]

    def _head(self, superlative: str, of: str, texts: Sequence[str]) -> str:
        if len(texts) == 1:
            return f"{superlative} {self._noun}{of}: {texts[0]}" if of else f"{superlative}: {texts[0]}"
        subject = f"{superlative} {self._noun}s{of}" if of else superlative
        return f"{subject}, not clearly apart: {', '.join(texts)}"

    def _best(self, points: Mapping[Mode, ModePoint], name: str) -> list[Mode]:
        """Return the best mode by a figure, and those that are not clearly worse, of which runs were enough to say so."""
        is_more_better = name == self._figures.speed and self._figures.is_rate
        values = {mode: value for mode in points if (value := self._middle(mode, name)) is not None}
        ordered = sorted(values, key=lambda mode: values[mode], reverse=is_more_better)
        worse = "lower" if is_more_better else "higher"
        rivals = [mode for mode in ordered[1:] if self._decided(ordered[0], mode, name).outcome not in (worse, "not judged")]
        return [ordered[0], *rivals]

    def _decided(self, base: Mode, mode: Mode, name: str) -> Decision:
        """Return the decision on the figure of `mode` against that of `base`."""
        values, of_base = self._values(mode, name), self._values(base, name)
        middle, middle_of_base = median(values), median(of_base)
        interval, interval_of_base = median_interval(values), median_interval(of_base)
        if interval is None or interval_of_base is None:
            return decide(middle / middle_of_base, None, MATTERS_RATIO)
        base_bounds = interval_of_base.low, interval_of_base.high
        bounds = interval_of_ratio(middle, (interval.low, interval.high), middle_of_base, base_bounds)
        return decide(middle / middle_of_base, bounds, MATTERS_RATIO)

    def _speed_up(self, base: Mode, mode: Mode) -> Decision:
        """Return the decision on the speed of `mode` against that of `base`: a rate is high where a time is low."""
        return self._decided(base, mode, self._figures.speed) if self._figures.is_rate else self._decided(mode, base, self._figures.speed)

    def _against(self, best: Mode, mode: Mode) -> str:
        """Return how much faster than `best` a mode is and how much more it costs; of a slower one, how much faster than it `best` is."""
        than = ""
        if (self._speed_up(best, mode).value or 1.0) < 1:
            best, mode, than = mode, best, self.points[mode].name
        speed = _change(self._speed_up(best, mode), "faster", "slower", "times as fast")
        as_fast = f"as fast{f' as {than}' if than else ''} within {percent(MATTERS_RATIO)}"
        compared = f" {'as' if 'times' in speed else 'than'} {than}" if than else ""
        texts = [f"is {speed}{compared}" if speed else f"is {as_fast}"]
        if self._has_joules:
            cost = _change(self._decided(best, mode, self._figures.energy), "more", "less", "times as much")
            per = f"per {self._figures.per}"
            texts.append(f"costs {cost} {per}" if cost else f"costs as much {per} within {percent(MATTERS_RATIO)}")
        return f"{self.points[mode].name} {' and '.join(texts)}"

    def _price(self, point: ModePoint) -> str:
        return f"{plain_digits(point.power_w, 3)} J/s" if self._has_joules else self._speed_text(point)

    def _speed_text(self, point: ModePoint) -> str:
        return self._figures.speed_text.format(plain_digits(point.speed, 3))

    def _doubts(self) -> list[str]:
        points = list(self.points.values())
        doubts = [f"{point.name} has no valid run ({point.invalid})" for point in points if not point.runs]
        fewest = min((point for point in points if point.runs), key=lambda point: point.runs)
        of_mode = "each" if len({point.runs for point in points}) == 1 else fewest.name
        doubts += [f"{count(fewest.runs, 'run')} of {of_mode}: {FEWEST} give an interval"] if fewest.runs < FEWEST else []
        suspect = sum(point.suspect for point in points)
        doubts += [f"{count(suspect, 'run')} suspect"] if suspect else []
        return [*doubts, self._why_no_joules() or ""]


def _missed(runs: Sequence[RunRecord]) -> tuple[int, float | None, float | None, float | None]:
    """Return the frames of all runs, the share of them that was missed, and its 95% bounds if all runs bear them."""
    steady = [run.steady for run in runs if run.steady is not None]
    frames = sum(part.frames for part in steady)
    if not frames:
        return 0, None, None, None
    ratio = sum(part.dropped + part.late for part in steady) / frames
    if len(steady) == 1:
        return frames, ratio, steady[0].missed_low_ratio, steady[0].missed_high_ratio
    effective = [part.effective for part in steady]
    is_split = ratio < MOST_MISSED_RATIO and any((part.missed_low_ratio or 0.0) >= MOST_MISSED_RATIO for part in steady)
    if None in effective or is_split:
        return frames, ratio, None, None
    return frames, ratio, *wilson_interval(ratio * sum(filter(None, effective)), sum(filter(None, effective)))


def _missing(point: ModePoint, hold: str = "") -> str:
    """Return that a mode does not hold the rate, or possibly; `hold` is the verb, where it does not stand before."""
    if point.missed_ratio is None:
        return f"{point.name} {f'does not{hold}' if point.holds is False else 'possibly'} ({point.limited_by})"
    missed = f"{significant((point.missed_ratio or 0.0) * 100, 2)}% of {{}}frames missed"
    if point.holds is False:
        return f"{point.name} does not{hold} ({missed.format('')})"
    holds = hold.replace("hold", "holds")
    limit = "" if point.missed_high_ratio is None else f", at most {significant(point.missed_high_ratio * 100, 2)}%"
    return f"{point.name} possibly{holds} ({missed.format(f'{point.frames:,} ')}{limit}: measure longer)"


def _change(decision: Decision, higher: str, lower: str, times: str) -> str:
    """Return a ratio as `38% more`, with its interval where that decides nothing; empty where both are alike."""
    ratio = decision.value or 1.0
    if decision.outcome == "alike":
        return ""
    text = f"{significant(ratio)} {times}" if ratio >= 2 else f"{significant(abs(ratio - 1) * 100, 2)}% {higher if ratio > 1 else lower}"
    if decision.outcome != "not settled" or decision.bounds is None:
        return text
    low, high = (bound * 100 - 100 for bound in decision.bounds)
    return f"possibly {text} (95% {span(low, high)}%)"
