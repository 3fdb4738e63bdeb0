"""A factory of the runtime `python`: its arguments, and the model that it returns.

The model may be of any framework.
"""

import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError, one_line
from edgemeter.agent.base.python_target import PythonTarget
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Options, TensorInfo
from edgemeter.agent.runtimes.adapter import check_options
from edgemeter.agent.runtimes.call_results import refuse_coroutine_function

_FORMS = "return a pair (callable, inputs) or a PythonModel"
_TENSORS = 'as {"image": ("float32", (1, 3, 224, 224))}, None for open sizes'
# Generic names of files of weights; their folder names the model.
_NAMELESS = ("model", "pytorch_model", "saved_model", "weights")
# The backend of a function in its caller's process, by which rules of the verdict recognise it.
_IN_PROCESS = "in-process"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonModel:
    """A model of a framework, as a factory returns it.

    call: takes one argument per input, in their order, as `place` returned them; returns arrays or
        tensors, in any nesting of tuples, lists, mappings and dataclasses. It may return before
        they are computed: the engine waits. inputs: what it takes (name, shape with None for open
        sizes, dtype), or a mapping as in a pair. outputs: as far as they are declared; may be
        empty: then the first call shows them. place: puts one input (numpy array) where the model
        reads it, untimed; default: as it is. wait: waits until a result is computed; default: by
        the result's type (PyTorch, JAX, TensorFlow), as for measured functions. arrays: turns a
        result into numpy arrays in order; default: by type (torch, jax, tensorflow, numpy,
        dataclass, mapping). backend: how it computes, for the record: `eager,cpu`, `jit,cpu`,
        `compile,cuda:0`. compiles: whether the first call compiles; a backend that begins with jit,
        compile or function does. packages: the distributions that compute, first the main one;
        their versions are the record's, and facts. weights: files hashed into the identity
        (sha256), in order.
    metadata: texts of the model, as of `Loaded.metadata` (class names, task).
    precision: as of `Loaded.precision`; default: that of its parameters where they can be seen,
    else unknown. close: releases it.
    """

    call: Callable[..., object]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...] = ()
    place: Callable[[Array], object] | None = None
    wait: Callable[[Any], object] | None = None
    arrays: Callable[[Any], list[Array]] | None = None
    backend: str = ""
    compiles: bool = False
    packages: tuple[str, ...] = ()
    weights: tuple[Path, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    close: Callable[[], None] | None = None


def model_of(returned: Any, address: str) -> PythonModel:
    """Return the factory's result as a PythonModel.

    Raises:
        ConfigError: that is impossible, or a declaration is wrong.
    """
    python_model = _in_one_form(returned, address)
    inputs, outputs = (
        _declared(kind, getattr(python_model, kind), address) for kind in ("inputs", "outputs")
    )
    weights: Any = python_model.weights
    weights = (weights,) if isinstance(weights, str | Path) else weights
    if not callable(python_model.call) or not inputs:
        raise ConfigError(
            f"the model of {address} "
            f"{'has no inputs' if callable(python_model.call) else 'cannot be called'}: "
            f"{_FORMS}"
        )
    if python_model.backend == _IN_PROCESS:
        raise ConfigError(
            f"the model of {address} names its backend {_IN_PROCESS!r}, which functions in their "
            "own process have: name another"
        )
    for info in inputs:
        try:
            is_plain = np.dtype(info.dtype).kind in "biuf"
        except TypeError:
            is_plain = False
        if not is_plain:
            raise ConfigError(
                f"input {info.name!r} of {address} has the type {info.dtype!r}, which numpy "
                "lacks: declare float32, convert it in `place`"
            )
    try:
        refuse_coroutine_function(python_model.call)
    except ConfigError as error:
        raise ConfigError(f"the model of {address}: {error}") from error
    return replace(python_model, inputs=inputs, outputs=outputs, weights=weights)


def _in_one_form(returned: Any, address: str) -> PythonModel:
    if isinstance(returned, PythonModel):
        return returned
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[0]):
        return PythonModel(call=returned[0], inputs=returned[1])
    kind = "nothing" if returned is None else type(returned).__qualname__
    raise ConfigError(f"the factory {address} returned {kind}: {_FORMS}")


def _declared(kind: str, tensors: Any, address: str) -> tuple[TensorInfo, ...]:
    """Return the inputs or outputs, which may be a mapping of names to dtype and shape.

    Raises:
        ConfigError: they are invalid.
    """
    try:
        infos: Any = tensors
        if isinstance(tensors, Mapping):
            infos = [
                TensorInfo(str(name), shape, str(np.dtype(dtype)))
                for name, (dtype, shape) in tensors.items()
            ]
        return tuple(replace(info, shape=tuple(map(_size, info.shape))) for info in infos)
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the {kind} of {address} are declared as {one_line(tensors)}: declare them {_TENSORS}"
        ) from error


def _size(size: Any) -> int | None:
    """Return a size of a shape; raises TypeError or ValueError if it is invalid."""
    if size is not None and operator.index(size) < 1:
        raise ValueError(size)
    return None if size is None else operator.index(size)


def target_of(model: Path, options: Options) -> PythonTarget:
    """Return the target; the factory of a plain Python file is `make`.

    Raises ConfigError if there is none, or its source is absent.
    """
    check_options("python", Options(threads=options.threads))
    target = (
        PythonTarget("make", file=model)
        if model.suffix == ".py" and model.is_file()
        else python_target.parse(str(model))
    )
    if target is None:
        raise ConfigError(
            f"{str(model)!r} names no factory: give FILE.py:make or package.module:make"
        )
    try:
        model_file.head(target.source)
    except ConfigError as error:
        raise ConfigError(f"{str(model)!r}: {error}") from error
    return target


def keywords_of(factory: Any, options: Options, address: str) -> dict[str, Any]:
    """Return the factory's arguments; raises ConfigError if an option is unknown or missing."""
    if not callable(factory):
        raise ConfigError(
            f"{address} is {type(factory).__qualname__}, which cannot be called: name a function "
            "that returns the model"
        )
    if inspect.iscoroutinefunction(factory) or inspect.isasyncgenfunction(factory):
        raise ConfigError(f"{address} is an async function: make it a plain one")
    try:
        parameters = dict(inspect.signature(factory).parameters)
    except ValueError:
        parameters = {}
    named = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    settings = {"threads": options.threads, "backend": options.backend}
    if unknown := [
        name for name in options.extra if name in settings or (name not in named and not takes_any)
    ]:
        choices = [name for name in named if name not in settings]
        hint = near(unknown[0], choices) if choices else "it takes none"
        raise ConfigError(f"{address} takes no option {unknown[0]!r}: {hint}")
    is_set = {"threads": options.threads > 1, "backend": options.backend is not None}
    if refused := [name for name in is_set if is_set[name] and name not in named]:
        raise ConfigError(
            f"{address} has no parameter `{refused[0]}`, so {settings[refused[0]]!r} cannot be "
            "set: leave it out, or add the parameter"
        )
    keywords = dict(options.extra) | {
        name: value for name, value in settings.items() if name in named and value is not None
    }
    if lacking := [
        name
        for name in named
        if parameters[name].default is inspect.Parameter.empty and name not in keywords
    ]:
        option = (
            f"--{lacking[0]} VALUE" if lacking[0] in settings else f"--option {lacking[0]}=VALUE"
        )
        raise ConfigError(f"{address} needs {lacking[0]!r}: add {option}")
    return keywords


def name_of(python_model: PythonModel, target: PythonTarget) -> str:
    """Return the name of the model in all formats."""
    if named := python_model.metadata.get("name"):
        # Names of Hugging Face have a slash.
        return str(named).replace("/", "-")
    if python_model.weights:
        weights = Path(python_model.weights[0])
        return weights.absolute().parent.name if weights.stem in _NAMELESS else weights.stem
    module = (target.module or "").rpartition(".")[2] or target.source.stem
    return module if target.attribute == "make" else target.attribute


def versions_of(packages: Sequence[str]) -> str:
    """Return the version of the first package, then those of others that differ.

    Another package than the first may compute.
    """
    first, *further = map(version_of, packages)
    return ", ".join(
        (
            first,
            *(
                f"{name} {text}"
                for name, text in zip(packages[1:], further, strict=True)
                if text != first
            ),
        )
    )


def version_of(package: str) -> str:
    """Return the version of a distribution, or else of the module with that name, or `unknown`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", "unknown"))
