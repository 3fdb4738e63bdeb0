"""Checks what a runtime is asked for: options before any library is imported, arrays before they are copied into a model."""

from collections.abc import Collection, Sequence

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Array, Options, TensorInfo


def check_options(runtime: str, options: Options, backends: Collection[str] | None = None, extra: Collection[str] = ()) -> None:
    """Return when `options` can be meant; `backends` None leaves the backend to the runtime; `extra` are the settings it knows.

    Raises:
        ConfigError: fewer than one thread, an unknown backend or an unknown setting.
    """
    if options.threads < 1:
        message = f"runtime {runtime!r} cannot run on {options.threads} threads: give 1 or more"
        raise ConfigError(message)
    if backends is not None and options.backend is not None and options.backend not in backends:
        message = f"runtime {runtime!r} has no backend {options.backend!r}: choose one of {', '.join(backends)}, or none"
        raise ConfigError(message)
    unknown = sorted(set(options.extra) - set(extra))
    if unknown:
        known = f"it knows {', '.join(extra)}" if extra else "it knows none"
        message = f"runtime {runtime!r} has no setting {unknown[0]!r}: {known}"
        raise ConfigError(message)


def check_inputs(inputs: Sequence[Array], declared: Sequence[TensorInfo]) -> None:
    """Return when `inputs` are what the model takes, in its order.

    Raises:
        ConfigError: their number, or the dtype or shape of one, is another than the model declares.
    """
    if len(inputs) != len(declared):
        names = ", ".join(repr(info.name) for info in declared)
        message = f"the model takes {len(declared)} inputs ({names}), got {len(inputs)}: give one array for each"
        raise ConfigError(message)
    for array, info in zip(inputs, declared, strict=True):
        if array.dtype.name != info.dtype or not fits(array.shape, info.shape):
            message = (
                f"input {info.name!r} takes {describe(info.dtype, info.shape)}, "
                f"got {describe(array.dtype.name, array.shape)}: prepare the data as the model declares"
            )
            raise ConfigError(message)


def fits(shape: Sequence[int], declared: Sequence[int | None]) -> bool:
    """Return whether `shape` has the declared rank and every dimension that is not left open."""
    return len(shape) == len(declared) and all(want is None or have == want for have, want in zip(shape, declared, strict=True))


def describe(dtype: str, shape: Sequence[int | None]) -> str:
    """Return a tensor in words: `float32 [1, 3, ?, ?]`."""
    return f"{dtype} [{', '.join('?' if size is None else str(size) for size in shape)}]"
