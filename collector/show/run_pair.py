"""Two runs of one model against each other: the figures with their ratios, and the facts in which they differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import Bounds, Decision
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.case_identity import FIELDS as IDENTITY
from edgemeter.agent.contract.case_identity import key_of, relation
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Condition, OtherProcess
from edgemeter.collector.compare.judgement import ACCURACY, JUDGED, Ratios, SmallestDifferences, decide_figure, ratios, why_not_compared
from edgemeter.collector.compare.summary import CaseSummary, environment, summarise
from edgemeter.collector.runs.cases import CaseRuns, unusable

Facts = dict[str, str | None]
# Stands in the identity, and in the machine's facts as well.
_OF_THE_MACHINE = frozenset({"power_mode"})


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _in(unit: str, per: float = 1.0) -> Callable[[float], str]:
    return lambda value: f"{figures.significant(value / per)} {unit}"


def _each(unit: str = "") -> Callable[[Mapping[str, float]], str]:
    return lambda values: ", ".join(f"{name} {figures.significant(value)}{unit}" for name, value in values.items())


def _process(value: OtherProcess) -> str:
    remainder = f" and {value.count - 1} more" if value.count > 1 else ""
    return f"{value.name} (pid {value.pid}{remainder}), {_share(value.load_ratio)} of all cores"


# By the record's name: what people call it, and how its value is written.
FIELDS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "temperatures_c": ("Temperature", _each(" °C")),
    "clock_hz": ("Clock", _in("MHz", 1e6)),
    "clock_max_hz": ("Highest clock allowed", _in("MHz", 1e6)),
    "throttled_now": ("Throttled", _yes_or_no),
    "throttled_since_boot": ("Throttled since boot", _yes_or_no),
    "under_voltage_now": ("Under-voltage", _yes_or_no),
    "under_voltage_since_boot": ("Under-voltage since boot", _yes_or_no),
    "other_load_ratio": ("Load of other processes", _share),
    "steal_ratio": ("Time taken by other guests", _share),
    "swap_used_mb": ("Swap in use", _in("MB")),
    "load_window_ms": ("Load observed for", _in("ms")),
    "agent_load_ratio": ("Load of the agent", _share),
    "served_load_ratio": ("Load of the measured server", _share),
    "busiest_other": ("Busiest other process", _process),
    "memory_available_mb": ("Memory available", _in("MB")),
    "governor": ("Governor", str),
    "power_mode": ("Power mode", str),
    "gpu_clock_hz": ("GPU clock", _in("MHz", 1e6)),
    "gpu_clock_max_hz": ("Highest GPU clock allowed", _in("MHz", 1e6)),
    "temperature_limits_c": ("Throttles or shuts down at", _each(" °C")),
    "throttle_flags": ("Throttle flags", hex),
    "throttle_events": ("Throttle events since boot", _each()),
    "clock_synchronised": ("Wall clock synchronised", _yes_or_no),
    "clock_offset_ms": ("Wall clock offset", _in("ms")),
    "clock_error_ms": ("Wall clock error, at most", _in("ms")),
    "attached": ("Attached", ", ".join),
}


def facts_of(condition: Condition) -> Facts:
    """Return what was read of the machine, by name."""
    names = (name for name in condition.__struct_fields__ if name != "when")
    values = {name: value for name in names if (value := getattr(condition, name)) not in (None, {}, ())}
    return {called: text(value) for name, value in values.items() for called, text in [FIELDS[name]]}


def machine_facts(run: RunRecord) -> Facts:
    """Return what the machine of a run is, in words."""

    def reported(*fields: str) -> str | None:
        return " ".join(text for field in fields if (text := environment([run], field))) or None

    memory_mb = run.environment.memory_mb
    return {
        "Board": reported("board"),
        "Processor": reported("soc", "cpu"),
        "Cores": reported("cores"),
        "Memory": None if memory_mb is None else f"{figures.significant(memory_mb / 1000)} GB",
        "System": reported("os"),
        "Kernel": reported("kernel", "arch"),
        "Firmware": reported("firmware"),
        "Governor": reported("governor"),
        "Power mode": reported("power_mode"),
        "Virtualisation": reported("virtualisation"),
        "Attached": reported("attached"),
        "Agent": reported("agent"),
        "Python": reported("python"),
        "Libraries": ", ".join(f"{name} {version}" for name, version in run.environment.libraries.items()) or None,
    }


def grouped_facts(run: RunRecord) -> dict[str, Facts]:
    """Return all facts of a run by what they are about; of two runs the same facts have the same names."""
    key, machine = key_of(run), machine_facts(run)
    del machine["Libraries"]
    groups: dict[str, Facts] = {
        "Case and settings": {
            **{field.name.replace("_", " ").capitalize(): field.text(key) for field in IDENTITY if field.name not in _OF_THE_MACHINE},
            "Model file": f"{run.model.file}, {run.model.size_bytes:,} bytes",
        },
        "Run": {
            "Suite": run.suite,
            "Mode": run.mode,
            "Seed": str(run.seed),
            "Queries": f"{run.latency.count:,}",
            "Warm-up": f"{run.warm_up.queries:,} queries, {'steady' if run.warm_up.steady else 'never steady'}",
            "Verdict": "; ".join([run.verdict.state, *run.verdict.reasons]),
            "Power sensor": f"{run.energy.sensor} at {run.energy.scope}" if run.energy else None,
        },
        "Software": {
            **{name: machine.pop(name) for name in ("System", "Kernel", "Firmware", "Agent", "Python")},
            **run.environment.libraries,
            **run.runtime.facts,
        },
        "Machine": machine,
    }
    groups |= {f"Conditions {condition.when}": facts_of(condition) for condition in run.conditions}
    if (scheduling := run.scheduling) is not None and scheduling.preemptions is not None:
        waited_ms = "" if scheduling.waited_ms is None else f", {figures.significant(scheduling.waited_ms)} ms ready without a core"
        groups.setdefault("Conditions during", {})["Scheduling"] = f"{figures.count(scheduling.preemptions, 'preemption')}{waited_ms}"
    return groups


NO_INTERVAL = "two runs support no interval of their ratio: how far runs of one case lie apart is not known from one run each"


@dataclass(frozen=True, slots=True)
class PairedFigure:
    """One figure of A and of B, with the 95% bounds that each record has; `decision` is B against A, else `reason` is why there is none."""

    name: str
    heading: str
    values: tuple[float | None, float | None]
    bounds: tuple[tuple[float, float] | None, tuple[float, float] | None]
    decision: Decision | None
    reason: str
    shown: Callable[[float | None], str]

    def text(self, side: int) -> str:
        """Return the value of A (0) or B (1) with its bounds."""
        ends = self.bounds[side]
        within = f" ({figures.span(*ends) if self.name != ACCURACY else ' to '.join(map(figures.accuracy, ends))})" if ends else ""
        return f"{self.shown(self.values[side])}{within}"

    @property
    def change(self) -> str:
        """B against A: a ratio as `1.07x`, of an accuracy the difference in points; empty where there is none."""
        value = self.decision.value if self.decision else None
        return "" if value is None else f"{value * 100:+.2f} points" if self.name == ACCURACY else figures.times(value)

    @property
    def interval(self) -> str:
        """The 95% interval of that, or why there is none."""
        if self.decision is None:
            return self.reason if None not in self.values else ""
        if self.decision.bounds is None:
            return self.decision.reason
        return interval_text(self.name, self.decision.bounds)


@dataclass(frozen=True, slots=True)
class FactPair:
    """A fact of A and of B in words, None where it is not reported; `group` is what it is about."""

    group: str
    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs: their figures, the facts that differ and those that are equal, and why no ratio is given (empty where one is)."""

    a: RunRecord
    b: RunRecord
    figures: tuple[PairedFigure, ...]
    differing: tuple[FactPair, ...]
    equal: tuple[FactPair, ...]
    no_ratio: str

    @property
    def is_one_case(self) -> bool:
        """Whether both are runs of one case."""
        return key_of(self.a) == key_of(self.b)


def pair_of(a: RunRecord, b: RunRecord) -> RunPair:
    """Return the two runs against each other; raises ConfigError if they are one run, or of two models."""
    if a.id == b.id:
        raise ConfigError(f"A and B are the same run, {a.id!r}: pick two")
    if a.model.name != b.model.name:
        raise ConfigError(
            f"run {a.id!r} is of {a.model.name} and run {b.id!r} of {b.model.name}: they do different work; pick two of one model"
        )
    facts = _fact_pairs(grouped_facts(a), grouped_facts(b))
    no_ratio = _why_no_ratio(a, b)
    sides = None if no_ratio else (_alone(a), _alone(b))
    return RunPair(
        a, b, _figures(a, b, sides), tuple(fact for fact in facts if fact.a != fact.b), tuple(fact for fact in facts if fact.a == fact.b),
        no_ratio,
    )  # fmt: skip


def decisions(a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> dict[str, Decision]:
    """Return the decision on every figure of `b` against `a` that has a ratio or a difference, by the names in options."""
    compared: Ratios = ratios(b, a)
    decided = {name: decide_figure(name, b, a, compared, matters.of(name)) for name in (*JUDGED, ACCURACY)}
    return {name: decision for name, decision in decided.items() if decision is not None}


def interval_text(name: str, bounds: Bounds) -> str:
    """Return the bounds of a ratio, or of a difference of accuracies."""
    return f"{bounds[0] * 100:+.2f} to {bounds[1] * 100:+.2f} points" if name == ACCURACY else figures.span(*bounds)


def _why_no_ratio(a: RunRecord, b: RunRecord) -> str:
    unlike = relation(key_of(b), key_of(a)).unlike
    if unlike:
        named = [f"{field.name.replace('_', ' ')} ({field.text(key_of(a))} against {field.text(key_of(b))})" for field in unlike]
        return f"the runs differ in {', '.join(named)}, so no ratio of them means anything"
    reasons = [f"{side}: {reason}" for side, run in (("A", a), ("B", b)) if (reason := unusable(run))]
    return f"no ratio, because {'; '.join(reasons)}" if reasons else ""


def _alone(run: RunRecord) -> CaseSummary:
    return summarise(CaseRuns(key_of(run), (run,)))


def _figures(a: RunRecord, b: RunRecord, sides: tuple[CaseSummary, CaseSummary] | None) -> tuple[PairedFigure, ...]:
    decided = decisions(*sides, SmallestDifferences()) if sides else {}
    paired = [
        PairedFigure(
            name, entry.heading_with_unit, (entry.value(a), entry.value(b)), (entry.bounds(a), entry.bounds(b)),
            decided.get(name), _why_absent(name, sides), entry.shown,
        )
        for name, entry in JUDGED.items()
    ]  # fmt: skip
    scores = (a.accuracy, b.accuracy)
    metric = next((metric_name(score.metric) for score in scores if score), "")
    if metric and all(score is None or metric_name(score.metric) == metric for score in scores):
        values = tuple(None if score is None else score.value for score in scores)
        ends = tuple(None if score is None or score.low is None or score.high is None else (score.low, score.high) for score in scores)
        paired.append(PairedFigure(ACCURACY, metric, values, ends, decided.get(ACCURACY), _why_absent(ACCURACY, sides), figures.accuracy))  # type: ignore[arg-type]
    return tuple(figure for figure in paired if figure.values != (None, None))


def _why_absent(name: str, sides: tuple[CaseSummary, CaseSummary] | None) -> str:
    return why_not_compared(name, sides[1], sides[0]) if sides else ""


def _fact_pairs(of_a: dict[str, Facts], of_b: dict[str, Facts]) -> Sequence[FactPair]:
    pairs = [
        FactPair(group, name, of_a.get(group, {}).get(name), of_b.get(group, {}).get(name))
        for group in dict.fromkeys((*of_a, *of_b))
        for name in dict.fromkeys((*of_a.get(group, ()), *of_b.get(group, ())))
    ]
    return [pair for pair in pairs if pair.a is not None or pair.b is not None]
