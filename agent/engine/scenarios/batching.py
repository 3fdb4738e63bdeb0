"""How many samples a call and a query take, as the model's shapes and the scenario have it; and inputs put together to batches."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Array, TensorInfo

BATCHES = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """A query is `calls` calls of `batch` samples each; `joined` single samples are put together to fill a batch (1: none are)."""

    batch: int
    calls: int
    joined: int

    @property
    def samples(self) -> int:
        """Return the samples of a query."""
        return self.batch * self.calls


def declared(inputs: Sequence[TensorInfo]) -> int | None:
    """Return the batch that the model's inputs declare: their common first size; None where all leave it open.

    An input of one dimension or none has no batch; sizes that differ between inputs are no batch either: 1.
    """
    sizes = {info.shape[0] if len(info.shape) > 1 else 1 for info in inputs}
    return sizes.pop() if len(sizes) == 1 else 1


def shape(case: Case, inputs: Sequence[TensorInfo]) -> Shape:
    """Return the shape of the queries of a case on a model with these inputs.

    Raises:
        ConfigError: the model cannot take such a batch, or not so many samples a query.
    """
    own = declared(inputs)
    if case.scenario == "offline":
        if own is None:
            return Shape(case.batch or 1, 1, case.batch or 1)
        if case.batch in (None, own):
            return Shape(own, 1, 1)
        message = f"the model takes {own} samples a call, not {case.batch}: leave `batch` out, or export it with an open batch dimension"
        raise ConfigError(message)
    if case.scenario == "multi_stream":
        wanted = case.samples_per_query
        if own is None:
            return Shape(wanted, 1, wanted)
        if wanted % own == 0:
            return Shape(own, wanted // own, 1)
        message = f"the model takes {own} samples a call, which do not make {wanted} a query: give samples_per_query = {own}, or a multiple"
        raise ConfigError(message)
    return Shape(own or 1, 1, 1)


def join(items: Sequence[list[Array]]) -> list[Array]:
    """Return one batch: the samples of `items`, input by input, along the first dimension."""
    return [np.concatenate([item[place] for item in items]) for place in range(len(items[0]))]


def joined(prepared: Sequence[list[Array]], samples: int, limit_bytes: int, seed: int) -> list[list[Array]]:
    """Return a few batches of `samples` items drawn from `prepared`, as many as fit into `limit_bytes`; of 1 sample: `prepared` itself."""
    if samples == 1:
        return list(prepared)
    batch_bytes = samples * max(1, sum(array.nbytes for array in prepared[0]))
    draw = random.Random(seed)  # noqa: S311 - a published, repeatable order is wanted
    return [join(draw.choices(prepared, k=samples)) for _ in range(max(1, min(BATCHES, limit_bytes // batch_bytes)))]
