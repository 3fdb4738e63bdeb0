"""Scenarios: the plan of a case, the batches of a query, and the offered and served load."""

import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_figures import Load
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine.scenarios import poisson, steady
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.runtimes import Array, TensorInfo

BATCHES = 8
# The number of batches that a median needs (MLPerf's early stopping).
FEWEST_BATCHES = 11


def declared_batch(inputs: Sequence[TensorInfo]) -> int | None:
    """Return the batch that the model's inputs declare, their common first size.

    None if all leave it open. It is 1 if an input has fewer than two dimensions, or if the first
    sizes differ.
    """
    sizes = {info.shape[0] if len(info.shape) > 1 else 1 for info in inputs}
    return sizes.pop() if len(sizes) == 1 else 1


def query_shape(case: Case, inputs: Sequence[TensorInfo]) -> tuple[int, int]:
    """Return the number of samples in a query of this model.

    The number of prepared inputs that are joined for it comes with it (1: none are).

    Raises:
        ConfigError: the model cannot take this batch.
    """
    batch = declared_batch(inputs)
    if case.scenario == "offline":
        if batch is None:
            return case.batch or 1, case.batch or 1
        if case.batch in (None, batch):
            return batch, 1
        raise ConfigError(
            f"the model takes {batch} samples a call, not {case.batch}: remove `batch`, or "
            "export it with an open batch dimension"
        )
    return batch or 1, 1


def join_batch(items: Sequence[list[Array]]) -> list[Array]:
    """Return one batch, `items` joined along the first dimension.

    Raises:
        ConfigError: they differ in shape.
    """
    if any(len({item[index].shape for item in items}) > 1 for index in range(len(items[0]))):
        raise ConfigError(
            'items of different lengths make no batch: pad them (padding = "tokens" in the '
            "card), or leave batch out"
        )
    return [np.concatenate([item[index] for item in items]) for index in range(len(items[0]))]


def joined_batches(
    prepared: Sequence[list[Array]], samples: int, limit_bytes: int, seed: int
) -> list[list[Array]]:
    """Return a few batches of `samples` items drawn from `prepared`.

    They are as many as fit into `limit_bytes`. For 1 sample it is `prepared` itself.
    """
    if samples == 1:
        return list(prepared)
    batch_bytes = samples * max(1, sum(array.nbytes for array in prepared[0]))
    draw = random.Random(seed)  # noqa: S311 - a published, repeatable order is wanted
    return [
        join_batch(draw.choices(prepared, k=samples))
        for _ in range(max(1, min(BATCHES, limit_bytes // batch_bytes)))
    ]


def plan_of(case: Case, seed: int, batch: int = 1) -> TimingPlan:
    """Return the plan of a case, before the duration of a query is known.

    `queries` of an offline case are samples.
    """
    queries = (
        max(FEWEST_BATCHES, -(-case.queries // batch))
        if case.scenario == "offline"
        else case.queries
    )
    return TimingPlan(
        queries,
        case.seconds,
        0,
        seed,
        case.rate_per_s,
        case.concurrency,
        deadline_ns=None if case.deadline_ms is None else round(case.deadline_ms * 1e6),
    )


def window(name: str, timed: TimedQueries) -> Window:
    """Return the timed part, from its beginning to its end.

    In single_stream it is from the first query.
    """
    return Window(
        int(timed.starts_ns[0]) if name == "single_stream" else timed.begin_ns, timed.end_ns
    )


def throughput_per_s(name: str, timed: TimedQueries, samples: int) -> float:
    """Return the samples a second, with `samples` in all.

    It is over the whole window, in single_stream over the calls alone.

    With several users the window lies between ramp-up and tail, and a query counts by the share of
    its time in the window.
    """
    if timed.users is not None:
        ends_ns = np.minimum(timed.starts_ns + timed.latency_ns, timed.busy_end_ns)
        within_ns = ends_ns - np.maximum(timed.starts_ns, timed.busy_begin_ns)
        shares = np.clip(within_ns / np.maximum(timed.latency_ns, 1), 0.0, 1.0)
        # The samples include those of the ramp-up.
        return float(shares.sum()) * samples_per_query(timed, samples) * 1e9 / timed.busy_ns
    spent_ns = (
        int(timed.latency_ns.sum())
        if name == "single_stream"
        else timed.end_ns - timed.begin_ns - timed.paused_ns
    )
    return samples * 1e9 / max(spent_ns, 1)


def samples_per_query(timed: TimedQueries, samples: int) -> int:
    """Return the number of samples of each query, if there are `samples` in all."""
    return max(1, samples // (timed.latency_ns.size + timed.ramp_up_ns.size))


def time_series(timed: TimedQueries, begin_ns: int) -> tuple[Series, ...]:
    """Return latencies, starts, arrivals, pauses and ends of the ramp-up as series of a record.

    Times count from `begin_ns`.
    """
    moments = {"query_start": timed.starts_ns}
    if timed.arrivals_ns is not None:
        moments["arrival"] = timed.arrivals_ns
    if timed.pauses_ns.size:
        moments |= {"pause_start": timed.pauses_ns[:, 0], "pause_end": timed.pauses_ns[:, 1]}
    if timed.ramp_up_ns.size:
        moments["ramp_up_end"] = timed.ramp_up_ns
    return (
        samples.pack("latency", "ns", timed.latency_ns),
        *(samples.pack(name, "ns", times_ns - begin_ns) for name, times_ns in moments.items()),
    )


def load_of_timed(timed: TimedQueries, samples_per_query: int, rate_per_s: float | None) -> Load:
    """Return the offered load, and how much of it was served."""
    served = int(timed.latency_ns.size)
    part = Load(
        samples=(served + timed.ramp_up_ns.size) * samples_per_query,
        failures=dict(Counter(failed.kind for failed in timed.failures)),
    )
    in_flight_max = poisson.in_flight_max(timed) if timed.overlap else None
    if timed.arrivals_ns is None:
        if timed.users is None:
            return part
        return msgspec.structs.replace(part, concurrency=timed.users, in_flight_max=in_flight_max)
    busy, keeps_up, gives_up = None, None, bool(timed.unserved)
    if timed.schedule is not None:
        rate_per_s = timed.schedule.rate_per_s
        busy, needed_ratio = steady.busy_ratio(timed, timed.schedule)
        # Frames that are dropped in a stall do not show that the model is too slow.
        keeps_up, gives_up = needed_ratio < 1, False
    elif timed.overlap:
        keeps_up = poisson.keeps_up(timed)
    elif rate_per_s is not None:
        busy, keeps_up = poisson.utilisation_ratio(timed), poisson.holds_rate(timed, rate_per_s)
    return msgspec.structs.replace(
        part,
        target_per_s=rate_per_s,
        utilisation_ratio=busy,
        is_sustained=False if gives_up else keeps_up,
        unserved=timed.unserved,
        in_flight_max=in_flight_max,
    )
