"""Energy per inference from the readings around a run, or the reason why they give none.

- Gross: the energy of the queries, without the gaps between them.
- Net: gross minus idle power over the same time. Idle power is the mean of the idle stretches
  before and after the queries (`block.py`).
- A net energy that is not above its uncertainty (`_unresolved_mj`) is not given.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.contract.energy_provenance import sensor_provenance
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.energy import budget, refusals
from edgemeter.agent.energy.block import Block, block_of
from edgemeter.agent.energy.budget import Term
from edgemeter.agent.energy.curve import Curve
from edgemeter.agent.energy.energies import Energies
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description
from edgemeter.agent.power.detect import NO_SENSOR, scope_rank
from edgemeter.agent.power.excluded_devices import Link, accelerator_refusal, excluded

RESOLVABLE = 3.0
COVERAGE_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class EnergyRun:
    """The measured work, with its timed part, idle stretches and number of inferences.

    `queries` are set if their times are known.

    `accelerator` is the link of the device that computes; `attached` are all attached devices, as
    in the environment. Work other than a run counts no inferences: then `inferences` is the number
    of its units, or 1.
    """

    timed: Window
    idle_before: Window | None
    idle_after: Window | None
    inferences: int
    queries: Queries | None = None
    accelerator: Link | None = None
    attached: Sequence[str] = ()
    counts_inferences: bool = True

    def own_ms(self) -> float:
        """Return the duration of the queries without random pauses.

        For a language model it is also without the gaps between queries.
        """
        if self.queries is None:
            return self.timed.length_ns / NS_PER_MS
        if self.counts_inferences:
            return (self.timed.length_ns - self.queries.paused_ns) / NS_PER_MS
        return float(self.queries.durations_ns.sum()) / NS_PER_MS


def energies_of(traces: Iterable[SensorTrace], run: EnergyRun) -> Energies:
    """Return the energies from each sensor by itself; measured ones come before replayed ones."""
    results = [assess(trace, run) for trace in ranked(traces)]
    energies = [energy for energy, _ in results if energy is not None]
    reasons = [reason for _, reason in results if reason is not None]
    if not energies:
        return Energies(None, "; ".join(reasons) or NO_SENSOR)
    return Energies(energies[0], None, tuple(energies[1:]), tuple(reasons))


def ranked(traces: Iterable[SensorTrace]) -> list[SensorTrace]:
    """Return the traces in the order of their energies.

    Measured ones come first, then those of the widest scope.
    """

    def order(trace: SensorTrace) -> tuple[bool, int]:
        description = trace.description
        if description is None:
            return False, -1
        is_measured = sensor_provenance(description.id, "measured") == "measured"
        return not is_measured, scope_rank(description.scope)

    return sorted(traces, key=order)


def assess(trace: SensorTrace, run: EnergyRun) -> tuple[Energy | None, str | None]:
    """Return the energy per inference from one sensor's readings; else None and the reason."""
    description = trace.description
    if description is None or len(trace.readings) < 2:
        return (
            None,
            f"{trace.name}: {trace.ended or 'it gave no two readings'}{refusals.failures(trace)}",
        )
    energy = _energy(trace, description, run)
    return (None, f"{trace.name}: {energy}") if isinstance(energy, str) else (energy, None)


def _energy(trace: SensorTrace, description: Description, run: EnergyRun) -> Energy | str:
    curve, timed = Curve(trace.readings, description), run.timed
    idle = [window for window in (run.idle_before, run.idle_after) if window is not None]
    values, new_values = curve.times_ns[curve.inside(timed)].size, curve.new_values(timed)
    spacing_ns = timed.length_ns / max(new_values, 1.0)
    refusal = (
        description.blocked
        or accelerator_refusal(description, run.accelerator)
        or refusals.too_little(curve, trace, timed, spacing_ns)
        or refusals.fault(curve, timed, idle, description)
    )
    if refusal:
        return refusal
    has_own_clock = values > refusals.OWN_CLOCK_RATIO * new_values
    if not has_own_clock:
        # A sensor without its own clock measures when it is read, so the phase of each reading in
        # its query is known.
        curve = Curve(trace.readings, description, run.queries)
    idle_windows = run.idle_before, run.idle_after
    block = block_of(
        curve, description, timed, idle_windows, spacing_ns, is_even=run.counts_inferences
    )
    refusal = block.refusal or (
        refusals.in_step(run.queries, spacing_ns, block.tail.delay_ns) if has_own_clock else None
    )
    return refusal or _energy_of_block(curve, description, run, block)


def _energy_of_block(
    curve: Curve, description: Description, run: EnergyRun, block: Block
) -> Energy | str:
    timed, idle = run.timed, block.idle
    whole_mj, own_ms = curve.energy_mj(timed) + block.tail.energy_mj, run.own_ms()
    breaks_ns = None if run.queries is None else run.queries.pauses_ns[:, 0]
    terms = budget.budget_of(curve, description, timed, block, breaks_ns, whole_mj)
    own_mj, terms["gaps"] = _without_gaps(
        curve, run, whole_mj, 0.0 if idle is None else idle.mean_w
    )
    if own_mj <= 0:
        return (
            "its readings leave no energy to the queries: they are too short beside the gaps "
            "between them"
        )
    # Here idle power is subtracted: `own_mj` is the gross energy of all queries.
    net_mj = None if idle is None else own_mj - idle.mean_w * own_ms
    is_resolved = net_mj is not None and net_mj > _unresolved_mj(terms)

    def each(energy_mj: float | None) -> float | None:
        return None if energy_mj is None else energy_mj / run.inferences

    return Energy(
        sensor=description.id,
        scope=description.scope,
        excludes=excluded(description, run.attached),
        gross_mj=own_mj / run.inferences,
        gross_u_mj=each(budget.gross_u_mj(terms)),
        net_mj=each(net_mj) if is_resolved else None,
        net_u_mj=None if net_mj is None else each(budget.net_u_mj(terms, abs(net_mj / own_mj))),
        after_load_mj=block.tail.after_load_mj,
        mean_power_w=own_mj / own_ms,
        idle_before_w=idle.before_w if idle else None,
        idle_after_w=idle.after_w if idle else None,
        window_ms=own_ms,
        interval_reason=budget.unknown_reason(terms),
    )


def _unresolved_mj(terms: Mapping[str, Term]) -> float:
    """Return the net energy up to which none is resolved.

    A net energy must exceed three uncertainties of idle power, and its own (k = 2) without the
    gain's, which only scales it.
    """
    own_u_mj = math.hypot(
        *(u_mj or 0.0 for name, (u_mj, _) in terms.items() if name not in {"gain", "offset"})
    )
    idle_u_mj = math.hypot(
        *(u_mj or 0.0 for name, (u_mj, _) in terms.items() if name.startswith("idle_"))
    )
    return max(RESOLVABLE * idle_u_mj, COVERAGE_FACTOR * own_u_mj)


def _without_gaps(
    curve: Curve, run: EnergyRun, whole_mj: float, idle_w: float
) -> tuple[float, Term]:
    """Return the energy of the queries alone, and the uncertainty from the gaps between them.

    The work in the gaps is unknown, so their power is bounded: by idle power, and by the mean power
    of the queries if the gaps drew idle power. A server may draw up to the highest power that was
    seen (rectangular, GUM 4.3.7). Readings in the gaps do not help, because the sensor may be late.
    """
    whole_ms, own_ms = run.timed.length_ns / NS_PER_MS, run.own_ms()
    gaps_ms = whole_ms - own_ms
    highest_w = (whole_mj - idle_w * gaps_ms) / own_ms
    if not run.counts_inferences and gaps_ms:
        highest_w = max(highest_w, float(curve.seen_w[curve.inside(run.timed)].max()))
    return whole_mj - (idle_w + highest_w) / 2 * gaps_ms, (
        abs(highest_w - idle_w) / math.sqrt(12) * gaps_ms,
        None,
    )
