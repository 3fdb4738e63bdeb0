"""The choice between a board's power modes or governors.

It is a table of modes with marks, from the valid runs of one case.

Modes are ranked by speed and by energy; with a deadline, only those that meet it. A figure ranks
only if each of these modes has it, and an energy only if the same sensor measured all of them (or
one recording was replayed). All pairs of modes and both figures are tested together (Holm), so that
in 95 of 100 tables no mode is marked as worse than its equal.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations

import msgspec

from edgemeter.agent.base.decision import MATTERS_RATIO, decide, holm
from edgemeter.agent.base.evidence import RunValue, difference, mean_of
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.case_identity import FIELD, CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import ENERGY, LATENCY, THROUGHPUT, TOKEN_ENERGY, figure
from edgemeter.agent.contract.held_load import are_in_time
from edgemeter.agent.contract.record import RunRecord

WOKE_LATE = "schedule-not-kept"  # The rule for runs in which Edgemeter itself woke up late.
MEETS_DEADLINE = {
    True: "meets the deadline",
    False: "misses the deadline",
    None: "deadline inconclusive",
}
NAMED = (
    "model",
    "prompt_tokens",
    "output_tokens",
    "precision",
    "runtime",
    "settings",
    "target_per_s",
    "deadline",
)


class ModeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of the modes of one case on one board, in the order of the runs.

    `ranked` names the figures by which they are ranked.
    """

    title: str
    ranked: tuple[str, ...]
    modes: dict[str, tuple[str, ...]]

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The cells of the table by heading."""
        by = " and ".join(figure(name).title for name in self.ranked)
        return {
            "mode": tuple(self.modes),
            f"marks, by {by}" if by else "marks": tuple(map(", ".join, self.modes.values())),
        }


def mode_answers(runs: Iterable[RunRecord]) -> list[ModeAnswer]:
    """Return an answer for each case that was measured in at least two modes."""
    cases: dict[CaseKey, dict[str, list[RunRecord]]] = {}
    for run in runs:
        cases.setdefault(without_mode(key_of(run)), {}).setdefault(
            mode_text(run) or "as it was", []
        ).append(run)
    return [_answer(key, modes) for key, modes in cases.items() if len(modes) > 1]


def without_mode(key: CaseKey) -> CaseKey:
    return msgspec.structs.replace(key, power_mode=None, operating_point="")


def mode_text(run: RunRecord) -> str:
    """Return the power mode, without its number, and the governor of the run.

    For example `25W, governor powersave`; empty without either.
    """
    key = key_of(run)
    number, _, name = (key.power_mode or "").partition(" ")
    mode = name if name and number.isdecimal() else key.power_mode
    return ", ".join(filter(None, (mode, key.operating_point)))


def _answer(key: CaseKey, modes: Mapping[str, list[RunRecord]]) -> ModeAnswer:
    speed, energy = THROUGHPUT if key.scenario == "offline" else LATENCY, ENERGY
    if key.generates:
        speed, energy = "generation_decode_tokens_per_s", TOKEN_ENERGY
    candidates = {
        mode: valid
        for mode, runs in modes.items()
        if (valid := [run for run in runs if run.verdict.state != "invalid"])
    }
    rules = {
        mode: dict.fromkeys(chain(*(run.verdict.rules for run in runs)))
        for mode, runs in modes.items()
    }
    marks = {
        mode: [] if mode in candidates else [f"invalid: {', '.join(rules[mode])}"] for mode in modes
    }
    if key.deadline:
        meets = {mode: _meets_deadline(runs) for mode, runs in candidates.items()}
        marks |= {mode: [MEETS_DEADLINE[is_met]] for mode, is_met in meets.items()}
        candidates = {mode: runs for mode, runs in candidates.items() if meets[mode]}
    runs = chain(*candidates.values())
    meters = {
        (energy_provenance(run), run.energy.sensor, run.energy.scope) for run in runs if run.energy
    }
    is_of_one_meter = len(meters) == 1 and meters.pop()[0] in ("measured", "replayed")
    ranked = {
        name: values
        for name in (speed, energy)[: 1 + is_of_one_meter]
        if (values := _values(name, candidates))
    }
    _mark(marks, ranked)
    return ModeAnswer(
        title=f"{', '.join(FIELD[name].text(key) for name in NAMED if getattr(key, name))} on "
        f"{key.device}",
        ranked=tuple(ranked),
        modes={mode: tuple(of_mode) for mode, of_mode in marks.items()},
    )


def _meets_deadline(runs: Sequence[RunRecord]) -> bool | None:
    """Return whether a mode meets the deadline.

    None if it is unclear because Edgemeter itself may have caused the misses.
    """
    in_time = are_in_time([run.steady for run in runs if run.steady])
    woke_late = any(
        run.steady and run.steady.missed_ratio > 0 and WOKE_LATE in run.verdict.rules
        for run in runs
    )
    return None if in_time is False and woke_late else in_time


def _values(name: str, modes: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[RunValue]]:
    """Return the logarithms of a figure by mode.

    There are none if a mode lacks it, or a value is not above 0.

    Rounds of a session are not paired here: three pairs have too few degrees of freedom to decide
    on many modes.
    """
    values = dict[str, list[RunValue]]()
    for number, (mode, runs) in enumerate(modes.items()):
        valued = [(run, value) for run in runs if (value := figure(name).value(run)) is not None]
        if min((value for _, value in valued), default=0.0) <= 0:
            return {}
        values[mode] = [
            RunValue(
                math.log(value),
                "",
                run.started_at_ns // NS_PER_DAY,
                (run.session_started_at_ns, number),
                run.environment.session_sd,
            )
            for run, value in valued
        ]
    return values


def _mark(
    marks: Mapping[str, list[str]], ranked: Mapping[str, Mapping[str, Sequence[RunValue]]]
) -> None:
    """Add the marks of the best mode by each figure.

    The modes without a significant difference to it are marked too.
    """
    pairs = [
        (name, {mode, other})
        for name, values in ranked.items()
        for mode, other in combinations(values, 2)
    ]
    evidences = [difference(*(ranked[name][mode] for mode in pair)) for name, pair in pairs]
    apart = [
        pair
        for pair, evidence, at in zip(pairs, evidences, holm(evidences), strict=True)
        if decide(evidence, at, MATTERS_RATIO, "lower").outcome in ("better", "worse")
    ]
    for name, values in ranked.items():
        mark = "most frugal" if figure(name).group == "energy" else "fastest"
        sign = 1 if figure(name).better == "higher" else -1
        best = max(values, key=lambda mode: sign * mean_of(values[mode]).middle)
        marks[best].append(mark)
        for mode in values.keys() - {best}:
            if (name, {best, mode}) not in apart:
                marks[mode].append(f"not significantly different from the {mark}")
