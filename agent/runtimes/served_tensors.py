"""Tensors of servers: their datatypes, their bytes, and the checks of an answer's tensors.

The datatypes are those of the Open Inference Protocol.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import AnswerError, ConfigError, UnavailableError, one_line
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.adapter import describe_tensor, shape_fits

# NumPy has no bfloat16, so it is converted to and from float32, which has all of its values.
BF16 = "BF16"
DTYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16",
    "FP32": "float32", "FP64": "float64", BF16: "float32",
}  # fmt: skip
# The types on the wire.
_LITTLE_ENDIAN = {
    name: np.dtype("uint16" if name == BF16 else dtype).newbyteorder("<")
    for name, dtype in DTYPES.items()
}
# The protocol does not allow these in JSON.
_NOT_IN_JSON = ("FP16", BF16)
# The most names in an error.
_NAMES = 8


@dataclass(frozen=True, slots=True)
class ServedTensor:
    """A tensor as the server declares it, with the server's name of its datatype."""

    info: TensorInfo
    datatype: str


@dataclass(frozen=True, slots=True)
class ServedDescription:
    """The server and the model by the server's description."""

    server: str
    server_version: str
    model: str
    inputs: tuple[ServedTensor, ...]
    outputs: tuple[ServedTensor, ...]
    model_version: str | None = None


class Payload(msgspec.Struct, frozen=True):
    """A prepared request: path, content and headers."""

    path: str
    content: bytes
    headers: Mapping[str, str]


def served_tensor(
    name: str, datatype: str, shape: Sequence[int], *, json_remedy: str = ""
) -> ServedTensor:
    """Return a declared tensor; raises ConfigError if its type cannot be sent or read.

    `json_remedy` is empty unless tensors are sent as JSON; then it is the remedy for types that
    JSON cannot represent.
    """
    if datatype not in DTYPES:
        remedy = (
            "serve a model without text inputs"
            if datatype == "BYTES"
            else f"known datatypes are {', '.join(DTYPES)}"
        )
        raise ConfigError(
            f"tensor {name!r} of the served model has "
            f"{f'the datatype {datatype}' if datatype else 'no datatype'}: {remedy}"
        )
    if json_remedy and datatype in _NOT_IN_JSON:
        raise ConfigError(
            f"tensor {name!r} of the served model is {datatype}, which JSON cannot represent: "
            f"{json_remedy}"
        )
    return ServedTensor(
        TensorInfo(name, tuple(None if size < 0 else size for size in shape), DTYPES[datatype]),
        datatype,
    )


def check_stated(
    model: str, inputs: Sequence[ServedTensor], outputs: Sequence[ServedTensor]
) -> None:
    """Raise ConfigError if the server declares no inputs or no outputs."""
    if not inputs or not outputs:
        raise ConfigError(
            f"the server declares no {'outputs' if inputs else 'inputs'} of {model!r}: add them "
            "to the model's configuration on the server "
            "(MLServer: model-settings.json)"
        )


def to_bytes(array: Array, datatype: str) -> bytes:
    """Return the elements in C order, little-endian.

    BF16 rounds float32 to the nearest, ties to even.
    """
    if datatype == BF16:
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        array = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def from_bytes(content: bytes | memoryview, tensor: ServedTensor, shape: Sequence[int]) -> Array:
    """Return the array of these bytes.

    Raises:
        AnswerError: their number does not fit the shape.
    """
    dtype = _LITTLE_ENDIAN[tensor.datatype]
    _check_sizes(shape, tensor.info)
    if len(content) != prod(shape) * dtype.itemsize:
        raise wrong_answer(
            tensor.info,
            f"holds {len(content)} bytes for the shape {list(shape)} of {tensor.datatype}",
        )
    # A writable copy.
    array: Array = np.ndarray(shape, dtype, bytearray(content))
    if tensor.datatype == BF16:
        array = array.astype(np.uint32)
        array <<= 16
        return array.view(np.float32)
    return array


def to_list(array: Array, info: TensorInfo) -> list[Any]:
    """Return the elements as nested lists; raises ConfigError if JSON cannot represent one."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ConfigError(
            f"input {info.name!r} has NaN or infinity, which JSON cannot represent: use "
            "a binary transport"
        )
    nested: list[Any] = array.tolist()
    return nested


def from_list(values: Any, info: TensorInfo, shape: Sequence[int]) -> Array:
    """Return the array of numbers in lists, nested or flat.

    Raises:
        AnswerError: they do not fit dtype or shape.
    """
    try:
        array = _numbers(values, np.dtype(info.dtype))
    except OverflowError:
        array = None
    except (ValueError, TypeError) as error:
        raise wrong_answer(info, "holds lists of different lengths") from error
    if array is None:
        raise wrong_answer(info, f"holds what is no {info.dtype}")
    _check_sizes(shape, info)
    if array.size != prod(shape):
        raise wrong_answer(info, f"holds {array.size} values for the shape {list(shape)}")
    return array.reshape(tuple(shape))


def _numbers(values: Any, dtype: np.dtype[Any]) -> Array | None:
    """Return the array of these numbers; None if one does not fit the dtype."""
    is_float = dtype.kind == "f"
    array = np.asarray(values)
    if not array.size:
        return array.astype(dtype)
    if array.dtype.kind not in ("biuf" if is_float else "biu"):
        # JSON has null for NaN, and integers that NumPy would turn into floats or objects.
        array = np.asarray(values, object)
        if not set(map(type, array.flat)) <= (
            {int, float, bool, type(None)} if is_float else {int, bool}
        ):
            return None
        array = array.astype(np.float64) if is_float else array
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    is_another = np.isinf(converted) & np.isfinite(array) if is_float else converted != array
    return None if is_another.any() else converted


def _check_sizes(shape: Sequence[int], info: TensorInfo) -> None:
    if min(shape, default=0) < 0:
        raise wrong_answer(info, f"states the shape {list(shape)}")


def checked(array: Array, info: TensorInfo) -> Array:
    """Return an output; raises AnswerError if it does not have the declared shape."""
    if not shape_fits(array.shape, info.shape):
        raise wrong_answer(
            info,
            f"is {describe_tensor(array.dtype.name, array.shape)}, the server declares "
            f"{describe_tensor(info.dtype, info.shape)}",
        )
    return array


def wrong_answer(info: TensorInfo, why: str) -> AnswerError:
    return AnswerError(
        f"output {info.name!r} of the served model {why}: correct the model's "
        "configuration on the server",
        kind="no answer",
    )


def json_document(content: bytes, kind: Any) -> Any:
    """Return an answer as `kind`; raises AnswerError if it has another form.

    NaN, which is not in JSON, is accepted.
    """
    try:
        try:
            document = msgspec.json.decode(content)
        except msgspec.DecodeError:
            document = json.loads(content)
        return msgspec.convert(document, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise AnswerError(
            f"the server's answer does not follow the protocol ({one_line(error)}): "
            f"{content[:60].decode(errors='replace')!r}; check url, "
            "protocol and transport in its file",
            kind="no answer",
        ) from error


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A version of a model in the server's list (extension model_repository).

    It has no state if it is not loaded.
    """

    name: str
    version: str | None = ""
    state: str | None = ""
    reason: str | None = ""


def ready_models(listed: Sequence[ListedModel]) -> list[str]:
    return sorted({entry.name for entry in listed if entry.state == "READY"})


def not_served(
    model: str | None, version: str | None, listed: Sequence[ListedModel], url: str, why: str
) -> UnavailableError:
    """Return the error about a model that a server does not serve, or that is not named."""
    entries = [entry for entry in listed if entry.name == model]
    if entries and not any(entry.state == "READY" for entry in entries):
        state = one_line(entries[-1].reason or entries[-1].state or "not loaded")
        return UnavailableError(
            f"{url} has the model {model!r}, but it is not ready ({state}): wait, or read its log"
        )
    is_listed = version is not None and bool(entries)
    names = (
        [entry.version for entry in entries if entry.version and entry.state == "READY"]
        if is_listed
        else ready_models(listed)
    )
    unlisted = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    has = f"it has {', '.join(names[:_NAMES])}{unlisted}" if names else "it lists none"
    if is_listed:
        return UnavailableError(
            f"{url} has no version {version!r} of the model {model!r} ({why}): {has}; set "
            "version in the server's file"
        )
    if model is None:
        return UnavailableError(
            f"{url} does not serve exactly one model, so the file has to name it: {has}; set "
            "model in the server's file"
        )
    remedy = (
        "check url and version of"
        if entries
        else "set model in"
        if names
        else "check url, protocol and model of"
    )
    return UnavailableError(
        f"{url} has no model {model!r} ({why}): {has}; {remedy} the server's file"
    )
