"""Items that are arrays, and the model's inputs from them.

An item is a `.npy` file, a `.npz` file with an array for each input, a file of raw values (MLPerf
Tiny's `.bin`), or an array within a file of many. Real values are quantised as the input declares.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.tasks import Inputs

Array = NDArray[Any]
# TorchScript declares no inputs; float32 is usual.
_UNDECLARED = TensorInfo("input", (), "float32")


def array_inputs(item: Item, loaded: Loaded) -> Inputs:
    """Return the inputs of the one call for an item, by their names.

    Raises:
        ConfigError: the item cannot be read, or does not fit the model's inputs.
    """
    infos = loaded.inputs or (_UNDECLARED,)
    arrays = _arrays(item, infos[0])
    if len(arrays) == len(infos) == 1:
        arrays = {infos[0].name: next(iter(arrays.values()))}
    if set(arrays) != {info.name for info in infos}:
        have, want = (
            ", ".join(map(repr, names)) for names in (arrays, [info.name for info in infos])
        )
        raise ConfigError(
            f"item {item.name!r} holds the arrays {have}, the model takes {want}: save them by "
            "these names, as .npz"
        )
    return {info.name: fitted(arrays[info.name], info, item) for info in infos}


def fitted(values: Array, info: TensorInfo, item: Item) -> Array:
    """Return values in the declared shape and, if they are real, quantised.

    The first dimension is 1 if it is open; another open dimension gets the size that remains.

    Raises:
        ConfigError: they do not fit.
    """
    stored, shape = _stored(values, info), info.shape
    if not shape:
        return stored[None]
    sizes = [1 if axis == 0 and size is None else size for axis, size in enumerate(shape)]
    if sizes.count(None) <= 1:
        size = int(np.prod([length for length in sizes if length is not None]))
        if stored.size and (stored.size % size == 0 if None in sizes else stored.size == size):
            return np.ascontiguousarray(
                stored.reshape([-1 if length is None else length for length in sizes])
            )
    elif len(shape) == stored.ndim + 1:
        return stored[None]
    raise ConfigError(
        f"item {item.name!r} has the shape {list(values.shape)}, input {info.name!r} takes "
        f"{list(shape)}: correct the data"
    )


def _stored(values: Array, info: TensorInfo) -> Array:
    dtype = np.dtype(info.dtype)
    if values.dtype.kind == "f" and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        values = np.clip(
            np.rint(values.astype(np.float64) / (info.scale or 1.0)) + (info.zero_point or 0),
            bounds.min,
            bounds.max,
        )
    return values.astype(dtype, copy=False)


def _arrays(item: Item, info: TensorInfo) -> dict[str, Array]:
    if item.array is not None:
        return {info.name: item.array}
    path = item.file
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as opened:
                return {name: opened[name] for name in opened.files}
        return {
            info.name: np.load(path, allow_pickle=False)
            if path.suffix.lower() == ".npy"
            else _raw(path.read_bytes(), info)
        }
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise ConfigError(
            f"{str(path)!r} is no array: {error}; save it with numpy.save or numpy.savez"
        ) from error


def _raw(content: bytes, info: TensorInfo) -> Array:
    """Return raw bytes as values of the input's type if the size fits, else as float32."""
    dtype, size = (
        np.dtype(info.dtype),
        int(np.prod([length for length in info.shape if length is not None])),
    )
    return np.frombuffer(content, dtype if len(content) == size * dtype.itemsize else "<f4")
