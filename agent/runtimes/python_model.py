"""The model that a factory of the runtime `python` returns: a model of any framework."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgemeter.agent.runtimes import Array, TensorInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonModel:
    """A model of a framework, as a factory returns it.

    call: takes one argument per input, in their order, as `place` returned them; returns arrays or tensors, in any nesting of tuples,
        lists, mappings and dataclasses. It may return before they are computed: the engine waits.
    inputs: what it takes (name, shape with None for open sizes, dtype).
    outputs: as far as they are declared; may be empty: then the first call shows them.
    place: puts one input (numpy array) where the model reads it, untimed; default: as it is.
    wait: waits until a result is computed; default: found by the result's type (torch CUDA, JAX), as for measured functions.
    arrays: turns a result into numpy arrays in order; default: by type (torch, jax, tensorflow, numpy, dataclass, mapping).
    backend: how it computes, for the record: `eager,cpu`, `jit,cpu`, `compile,cuda:0`.
    packages: the distributions that compute, first the main one, whose version is the record's; the versions of all are facts.
    weights: files hashed into the identity (sha256), in order.
    metadata: texts of the model, as of `Loaded.metadata` (class names, task).
    precision: as of `Loaded.precision`.
    facts: called after the timed part; what a record should hold of how it ran (graph breaks, recompilations), texts by name.
    close: releases it.
    """

    call: Callable[..., object]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...] = ()
    place: Callable[[Array], object] | None = None
    wait: Callable[[Any], object] | None = None
    arrays: Callable[[Any], list[Array]] | None = None
    backend: str = ""
    packages: tuple[str, ...] = ()
    weights: tuple[Path, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    facts: Callable[[], Mapping[str, str]] | None = None
    close: Callable[[], None] | None = None
