"""Which power mode or governor of one board to take: its modes as a table with marks, from the runs of one case.

All modes are ranked by speed and by energy, at a rate those that meet the deadline. A figure ranks only where each of these has it, and
an energy where one sensor measured all of them (or one recording was replayed). All pairs of modes and both figures are decided together,
so that in 95 of 100 tables no mode is marked behind one that it equals.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import msgspec

from edgemeter.agent.base.decision import MATTERS_RATIO, decide, holm
from edgemeter.agent.base.evidence import RunValue, difference, mean_of
from edgemeter.agent.base.figures import plain_digits
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import ENERGY, LATENCY, THROUGHPUT, TOKEN_ENERGY, figure
from edgemeter.agent.contract.held_load import OF_LOAD, UNSOUND, are_in_time, is_held
from edgemeter.agent.contract.record import RunRecord

WOKE_LATE = "schedule-not-kept"  # The rule for runs in which Edgemeter itself woke up late.
MEETS_DEADLINE = {True: "meets the deadline", False: "misses the deadline", None: "deadline inconclusive"}


class ModeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of the modes of one case on one board, in the order of the runs; `ranked` names the figures by which they are ranked."""

    title: str
    ranked: tuple[str, ...]
    modes: dict[str, tuple[str, ...]]

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The cells of the table by heading."""
        by = " and ".join(figure(name).title for name in self.ranked)
        return {"mode": tuple(self.modes), f"marks, by {by}": tuple(map(", ".join, self.modes.values()))}


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


def _answer(key: CaseKey, modes: dict[str, list[RunRecord]]) -> ModeAnswer:
    first = next(iter(modes.values()))[0]
    speed, energy = THROUGHPUT if key.scenario == "offline" else LATENCY, ENERGY
    if first.generation:
        speed, energy = "generation_decode_tokens_per_s", TOKEN_ENERGY
    counted = {mode: list(filter(_counts, runs)) for mode, runs in modes.items()}
    values = {name: {mode: _values(runs, name, number) for number, (mode, runs) in enumerate(counted.items())} for name in (speed, energy)}
    marks: dict[str, list[str]] = {mode: [] for mode in counted}
    candidates = [mode for mode, runs in counted.items() if runs]
    rate_per_s = first.steady.rate_per_s if first.steady else key.target_per_s
    if rate_per_s is not None:
        meets = {mode: _meets_deadline(counted[mode]) for mode in candidates}
        marks |= {mode: [MEETS_DEADLINE[meets[mode]]] for mode in candidates}
        candidates = [mode for mode in candidates if meets[mode]]
    meters = {(energy_provenance(run), run.energy.sensor, run.energy.scope) for run in chain(*counted.values()) if run.energy}
    is_of_one_meter = len(meters) == 1 and meters.pop()[0] in ("measured", "replayed")
    ranked = [name for name in values if all(values[name][mode] for mode in candidates) and (name == speed or is_of_one_meter)]
    _mark(marks, {name: {mode: values[name][mode] for mode in candidates} for name in ranked})
    rate = "" if rate_per_s is None else f"{plain_digits(rate_per_s)} a second"
    model = f"{key.model} {first.generation.lengths}" if first.generation else key.model
    return ModeAnswer(
        title=f"{', '.join(filter(None, (model, key.precision, key.runtime, key.settings, rate)))} on {key.device}",
        ranked=tuple(ranked),
        modes={mode: tuple(of_mode) for mode, of_mode in marks.items()},
    )


def _values(runs: Sequence[RunRecord], name: str, number: int) -> list[RunValue]:
    """Return the logarithms of a figure, none where a value is not above 0.

    Rounds of a session make no pairs here: three pairs have too few degrees of freedom to decide on many modes.
    """
    values = [(run, value) for run in runs if (value := figure(name).value(run)) is not None]
    if min((value for _, value in values), default=0.0) <= 0:
        return []
    return [
        RunValue(math.log(value), "", run.started_at_ns // NS_PER_DAY, (run.session_started_at_ns, number), run.environment.session_sd)
        for run, value in values
    ]


def _meets_deadline(runs: Sequence[RunRecord]) -> bool | None:
    """Return whether a mode holds the rate, None where that is not clear: misses that Edgemeter itself may have made are no answer."""
    if steady := [run.steady for run in runs if run.steady]:
        woke_late = any(run.steady and run.steady.missed_ratio > 0 and WOKE_LATE in run.verdict.rules for run in runs)
        in_time = are_in_time(steady)
        return None if in_time is False and woke_late else in_time
    are_held = [is_held(run) for run in runs]
    return None if None in are_held else all(are_held)


def _mark(marks: dict[str, list[str]], ranked: dict[str, dict[str, list[RunValue]]]) -> None:
    """Add the marks of the best mode by each figure, and of the modes that are not told apart from it."""
    pairs = [(name, *pair) for name, modes in ranked.items() for pair in combinations(modes, 2)]
    evidences = [difference(ranked[name][mode], ranked[name][other]) for name, mode, other in pairs]
    apart = {
        frozenset(pair)
        for pair, evidence, confidence in zip(pairs, evidences, holm(evidences), strict=True)
        if decide(evidence, confidence, MATTERS_RATIO, "lower").outcome in ("better", "worse")
    }
    for name, modes in ranked.items():
        best_mark = "most frugal" if figure(name).group == "energy" else "fastest"
        middles = {mode: mean_of(values).middle for mode, values in modes.items()}
        best = (max if figure(name).better == "higher" else min)(middles, key=lambda mode: middles[mode], default=None)
        for mode in modes:
            if mode == best:
                marks[mode].append(best_mark)
            elif frozenset((name, best, mode)) not in apart:
                marks[mode].append(f"not told apart from the {best_mark}")
