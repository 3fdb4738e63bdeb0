"""Protocols of served models over HTTP: the Open Inference Protocol (v2), TensorFlow Serving's REST, and a template of one's own.

Source: https://github.com/triton-inference-server/server/tree/main/docs/protocol, https://www.tensorflow.org/tfx/serving/api_rest.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.server_connection import Answer, error_message, tensor_remedy
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.served_protocols import CustomTensor, ServedFile, ServerLink
from edgemeter.agent.runtimes.served_tensors import (
    DATATYPES,
    NO_REQUESTS,
    ListedModel,
    Payload,
    Reply,
    ServedDescription,
    ServedTensor,
    ServerStatistics,
    check_stated,
    checked,
    from_bytes,
    from_list,
    json_document,
    not_served,
    ready_models,
    served_tensor,
    to_bytes,
    to_list,
    wrong_answer,
)

_JSON: Mapping[str, str] = {}
_BINARY = {"Content-Type": "application/octet-stream"}
_HEAD_BYTES = "Inference-Header-Content-Length"
# An input in the body of protocol custom: as lists, as base64, or as bytes.
_PLACEHOLDER = re.compile(r"\{(.+?)(:base64|:bytes)?\}")
_READY_PATH = "/v2/health/ready"


class _OipTensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]


class _OipMetadata(msgspec.Struct):
    inputs: list[_OipTensor] | None = None
    outputs: list[_OipTensor] | None = None
    versions: list[str] | None = None


class _OipDuration(msgspec.Struct, frozen=True):
    count: int = 0
    ns: int = 0


class _OipDurations(msgspec.Struct, frozen=True):
    success: _OipDuration = _OipDuration()
    queue: _OipDuration = _OipDuration()
    compute_input: _OipDuration = _OipDuration()
    compute_infer: _OipDuration = _OipDuration()
    compute_output: _OipDuration = _OipDuration()
    cache_hit: _OipDuration = _OipDuration()

    def counts(self) -> ServerStatistics:
        compute_ns = self.compute_input.ns + self.compute_infer.ns + self.compute_output.ns
        return ServerStatistics(self.success.count, self.queue.ns, compute_ns, self.cache_hit.count)


class _OipModelStatistics(msgspec.Struct):
    inference_stats: _OipDurations = _OipDurations()


class _OipStatistics(msgspec.Struct):
    model_stats: list[_OipModelStatistics]


class _OipOutput(_OipTensor):
    data: Any = None
    parameters: dict[str, Any] | None = None


class _OipAnswer(msgspec.Struct):
    outputs: list[_OipOutput]
    model_version: str | None = None


def _check_described(answer: Answer, path: str, model: str, models: Callable[[], Sequence[ListedModel]], file: ServedFile) -> None:
    """Raise UnavailableError unless it is the description of a model; Triton refuses an unknown one with 400, others with 404."""
    reason = error_message(answer.document)
    if answer.status in (400, 404):
        raise not_served(model, file.version, models(), file.url, reason or f"status {answer.status}")
    if answer.status != 200:
        remedy = tensor_remedy(answer.status, path, answer.location)
        raise UnavailableError(f"{file.url}{path} answers {answer.status}{f': {reason}' if reason else ''}; {remedy}")
    if not answer.document:
        raise UnavailableError(
            f"{file.url} is not a server of this protocol ({path} answers {answer.content[:30].decode(errors='replace')!r}): check url and "
            "protocol of the server's file"
        )


class OpenInference:
    """The Open Inference Protocol over HTTP, its tensors as JSON or as bytes behind it (Triton's extension binary_tensor_data)."""

    def __init__(self, link: ServerLink, file: ServedFile) -> None:
        self._link, self._file = link, file
        self._path, self._is_binary = "", file.transport == "binary"
        self._inputs: tuple[ServedTensor, ...] = ()
        self._outputs: tuple[ServedTensor, ...] = ()
        self.ping_path = _READY_PATH
        self.model_version: str | None = None

    @property
    def form(self) -> str:
        """The protocol, and the form of its tensors."""
        return f"oip,{'binary' if self._is_binary else 'json'}"

    def describe(self) -> ServedDescription:
        """See `ServedProtocol.describe`."""
        server = self._link.ask("/v2").document
        if self._file.transport == "auto":
            self._is_binary = "binary_tensor_data" in (server.get("extensions") or ())
        model = self._file.model or self._only_model()
        self._path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(self._file.version)}" if self._file.version else "")
        answer = self._link.ask(self._path)
        _check_described(answer, self._path, model, self._models, self._file)
        if (ready := self._link.ask(f"{self._path}/ready")).status != 200:
            reason = error_message(ready.document) or f"status {ready.status}"
            raise UnavailableError(f"{self._file.url} has the model {model!r}, but it is not ready ({reason}): wait, or read its log")
        try:
            metadata = msgspec.convert(answer.document, _OipMetadata)
        except msgspec.ValidationError as error:
            raise UnavailableError(f"{self._file.url} describes {model!r} as the protocol does not: {error}: check its url") from error
        remedy = "" if self._is_binary else 'set transport = "binary" or "grpc", if the server speaks it'
        self._inputs, self._outputs = (
            tuple(served_tensor(tensor.name, tensor.datatype, tensor.shape, json_remedy=remedy) for tensor in tensors or ())
            for tensors in (metadata.inputs, metadata.outputs)
        )
        check_stated(model, self._inputs, self._outputs)
        version = self._file.version or (metadata.versions[0] if metadata.versions and len(metadata.versions) == 1 else None)
        name, server_version = (str(server.get(key) or "unknown") for key in ("name", "version"))
        return ServedDescription(name, server_version, model, self._inputs, self._outputs, version)

    def _only_model(self) -> str:
        models = self._models()
        if len(names := ready_models(models)) != 1:
            raise not_served(None, None, models, self._file.url, "")
        return names[0]

    def _models(self) -> list[ListedModel]:
        """Return what the server has, as far as it lists that."""
        try:
            return decode_json(self._link.ask("/v2/repository/index", {}).content, list[ListedModel])
        except msgspec.MsgspecError:
            return []

    def request(self, inputs: Sequence[Array]) -> Payload:
        """See `ServedProtocol.request`."""
        tensors: list[dict[str, Any]] = []
        contents = []
        for array, tensor in zip(inputs, self._inputs, strict=True):
            entry = {"name": tensor.info.name, "shape": array.shape, "datatype": tensor.datatype}
            if self._is_binary:
                contents.append(to_bytes(array, tensor.datatype))
                tensors.append({**entry, "parameters": {"binary_data_size": len(contents[-1])}})
            else:
                tensors.append({**entry, "data": to_list(array.reshape(-1), tensor.info)})
        form = {"parameters": {"binary_data": True}} if self._is_binary else {}
        outputs = [{"name": tensor.info.name, **form} for tensor in self._outputs]
        head = msgspec.json.encode({"inputs": tensors, "outputs": outputs})
        headers = _BINARY | {_HEAD_BYTES: str(len(head))} if self._is_binary else _JSON
        return Payload(f"{self._path}/infer", b"".join((head, *contents)), headers)

    def outputs(self, reply: Reply) -> list[Array]:
        """See `ServedProtocol.outputs`."""
        size_text = reply.headers.get(_HEAD_BYTES.lower(), "")
        head_bytes = int(size_text) if size_text.isdecimal() else len(reply.content)
        answer = json_document(reply.content[:head_bytes], _OipAnswer)
        self.model_version = answer.model_version or None
        content, at = memoryview(reply.content), head_bytes
        arrays = {}
        for output in answer.outputs:
            size = (output.parameters or {}).get("binary_data_size")
            arrays[output.name] = output, content[at : at + size] if isinstance(size, int) else output.data
            at += size if isinstance(size, int) else 0
        return [self._read(tensor, *arrays.get(tensor.info.name, (None, None))) for tensor in self._outputs]

    def _read(self, tensor: ServedTensor, output: _OipOutput | None, data: Any) -> Array:
        if output is None or data is None:
            raise wrong_answer(tensor.info, "is not in the answer")
        if output.datatype != tensor.datatype:
            raise wrong_answer(tensor.info, f"comes as {output.datatype}, the server declares {tensor.datatype}")
        if isinstance(data, memoryview):
            return checked(from_bytes(data, tensor, output.shape), tensor.info)
        return checked(from_list(data, tensor.info, output.shape), tensor.info)

    def statistics(self) -> ServerStatistics | str:
        """See `ServedProtocol.statistics`."""
        answer = self._link.ask(f"{self._path}/stats")
        try:
            statistics = msgspec.convert(answer.document, _OipStatistics)
        except msgspec.ValidationError:
            return f"the server states no statistics of its own ({error_message(answer.document) or f'status {answer.status}'})."
        return sum((model.inference_stats.counts() for model in statistics.model_stats), NO_REQUESTS)


_OF_TENSORFLOW = {
    "DT_BOOL": "BOOL", "DT_UINT8": "UINT8", "DT_UINT16": "UINT16", "DT_UINT32": "UINT32", "DT_UINT64": "UINT64", "DT_INT8": "INT8",
    "DT_INT16": "INT16", "DT_INT32": "INT32", "DT_INT64": "INT64", "DT_HALF": "FP16", "DT_FLOAT": "FP32", "DT_DOUBLE": "FP64",
    "DT_BFLOAT16": "BF16", "DT_STRING": "BYTES",
}  # fmt: skip


class _TensorFlowShape(msgspec.Struct):
    dim: list[dict[str, str]] = []
    unknown_rank: bool = False


class _TensorFlowTensor(msgspec.Struct):
    dtype: str
    tensor_shape: _TensorFlowShape


class _Signature(msgspec.Struct):
    inputs: dict[str, _TensorFlowTensor] = {}
    outputs: dict[str, _TensorFlowTensor] = {}


class TensorFlowServing:
    """TensorFlow Serving's REST interface, in its column form: all inputs by name, as nested lists."""

    form = "tf-serving,json"

    def __init__(self, link: ServerLink, file: ServedFile) -> None:
        self._link, self._file = link, file
        self._inputs: tuple[ServedTensor, ...] = ()
        self._outputs: tuple[ServedTensor, ...] = ()
        self._path = self.ping_path = "/v1/models/"
        self.model_version: str | None = None

    def describe(self) -> ServedDescription:
        """See `ServedProtocol.describe`."""
        file = self._file
        if file.model is None:
            raise ConfigError(f"the server's file of {file.url} names no model, which TensorFlow Serving needs: set model")
        self._path = f"/v1/models/{quote(file.model, safe='')}" + (f"/versions/{quote(file.version)}" if file.version else "")
        self.ping_path = self._path
        state = self._link.ask(self._path).document.get("model_version_status")
        states = [str(entry.get("state")) for entry in state if isinstance(entry, dict)] if isinstance(state, list) else []
        if states and "AVAILABLE" not in states:
            raise UnavailableError(f"{file.url} has the model {file.model!r}, but it is not ready ({', '.join(states)}): wait")
        answer = self._link.ask(f"{self._path}/metadata")
        _check_described(answer, f"{self._path}/metadata", file.model, self._models, file)
        try:
            signatures = msgspec.convert(answer.document["metadata"]["signature_def"]["signature_def"], dict[str, _Signature])
            version = answer.document["model_spec"]["version"]
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise UnavailableError(f"{file.url} describes {file.model!r} as the protocol does not: {error}: check its url") from error
        if file.signature not in signatures:
            raise ConfigError(f"the model {file.model!r} has no signature {file.signature!r}: it has {', '.join(signatures)}")
        signature = signatures[file.signature]
        self._inputs, self._outputs = (tuple(map(_of_signature, part.items())) for part in (signature.inputs, signature.outputs))
        return ServedDescription("TensorFlow Serving API", "unknown", file.model, self._inputs, self._outputs, str(version))

    def _models(self) -> list[ListedModel]:
        """Return what OpenVINO Model Server lists."""
        answer = self._link.ask("/v1/config")
        return [ListedModel(name, state="READY") for name in answer.document] if answer.status == 200 else []

    def request(self, inputs: Sequence[Array]) -> Payload:
        """See `ServedProtocol.request`."""
        values = {tensor.info.name: to_list(array, tensor.info) for array, tensor in zip(inputs, self._inputs, strict=True)}
        content = msgspec.json.encode({"signature_name": self._file.signature, "inputs": values})
        return Payload(f"{self._path}:predict", content, _JSON)

    def outputs(self, reply: Reply) -> list[Array]:
        """See `ServedProtocol.outputs`."""
        values = json_document(reply.content, dict[str, Any]).get("outputs")
        # A single output comes without its name.
        named = {self._outputs[0].info.name: values} if len(self._outputs) == 1 and not isinstance(values, dict) else values or {}
        for tensor in self._outputs:
            if named.get(tensor.info.name) is None:
                raise wrong_answer(tensor.info, "is not in the answer")
        return [checked(from_list(named[tensor.info.name], tensor.info), tensor.info) for tensor in self._outputs]

    def statistics(self) -> ServerStatistics | str:
        """See `ServedProtocol.statistics`."""
        return "TensorFlow Serving's REST interface states no times of its own."


def _of_signature(entry: tuple[str, _TensorFlowTensor]) -> ServedTensor:
    name, tensor = entry
    if tensor.tensor_shape.unknown_rank:
        raise ConfigError(f"tensor {name!r} of the served model has no known rank: export the model with shapes")
    sizes = [int(size) if (size := dim.get("size", "-1")).lstrip("-").isdecimal() else -1 for dim in tensor.tensor_shape.dim]
    return served_tensor(
        name, _OF_TENSORFLOW.get(tensor.dtype, tensor.dtype), sizes, json_remedy="serve it with float32 there, or by protocol oip"
    )


class Custom:
    """A server of one's own: the file holds a template of its request, and where the outputs stand in its answer."""

    form = "custom"

    def __init__(self, link: ServerLink, file: ServedFile) -> None:
        self._link, self._file, self.ping_path = link, file, file.path
        self._inputs, self._outputs = (
            tuple(served_tensor(tensor.name, DATATYPES[tensor.dtype], tensor.shape) for tensor in tensors)
            for tensors in (file.inputs, file.outputs)
        )
        self.model_version: str | None = None

    def describe(self) -> ServedDescription:
        """See `ServedProtocol.describe`; any answer shows that the server is there."""
        file = self._file
        if not (file.inputs and file.outputs and file.body):
            raise ConfigError(f"the server's file of {file.url} has no body, inputs or outputs: protocol custom needs all three")
        text = msgspec.json.encode(file.body).decode()
        for tensor in file.inputs:
            if not re.search(rf'"{{{re.escape(tensor.name)}(:base64|:bytes)?}}"', text):
                raise ConfigError(
                    f'the server\'s file of {file.url} sends no {tensor.name}: the body of its file has no "{{{tensor.name}}}"'
                )
        self._link.ask(self.ping_path)
        return ServedDescription("custom", "unknown", file.model or file.path, self._inputs, self._outputs, file.version)

    def request(self, inputs: Sequence[Array]) -> Payload:
        """See `ServedProtocol.request`."""
        tensors = {tensor.info.name: (array, tensor) for array, tensor in zip(inputs, self._inputs, strict=True)}

        def filled(part: Any) -> Any:
            if isinstance(part, dict):
                return {key: filled(value) for key, value in part.items()}
            if isinstance(part, list):
                return [filled(value) for value in part]
            placeholder = _PLACEHOLDER.fullmatch(part) if isinstance(part, str) else None
            if placeholder is None or placeholder[1] not in tensors:
                return part
            array, tensor = tensors[placeholder[1]]
            if placeholder[2] is None:
                return to_list(array, tensor.info)
            content = to_bytes(array, tensor.datatype)
            return content if placeholder[2] == ":bytes" else base64.b64encode(content).decode()

        body = filled(self._file.body)
        is_binary = isinstance(body, bytes)
        return Payload(self._file.path, body if is_binary else msgspec.json.encode(body), _BINARY if is_binary else _JSON)

    def outputs(self, reply: Reply) -> list[Array]:
        """See `ServedProtocol.outputs`."""
        needs_json = any(tensor.encoding != "bytes" for tensor in self._file.outputs)
        document = json_document(reply.content, Any) if needs_json else None
        arrays = []
        for part, tensor in zip(self._file.outputs, self._outputs, strict=True):
            value = reply.content if part.encoding == "bytes" else _at(document, part.pointer, tensor.info)
            arrays.append(checked(_custom_array(value, part, tensor), tensor.info))
        return arrays

    def statistics(self) -> ServerStatistics | str:
        """See `ServedProtocol.statistics`."""
        return "a server of one's own (protocol custom) states no times in a form that is known."


def _at(document: Any, pointer: str, info: TensorInfo) -> Any:
    """Return the value at a JSON pointer (RFC 6901)."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            document = document[int(key)] if isinstance(document, list) else document[key]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise wrong_answer(info, f"is not at {pointer!r} of the answer") from error
    return document


def _custom_array(value: Any, part: CustomTensor, tensor: ServedTensor) -> Array:
    if part.encoding == "list":
        array = from_list(value, tensor.info)
        return array.reshape(part.shape) if min(part.shape, default=0) >= 0 and array.size == prod(part.shape) else array
    try:
        content = value if part.encoding == "bytes" else base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise wrong_answer(tensor.info, "is no base64") from error
    sizes = prod(size for size in part.shape if size > 0) * np.dtype(part.dtype).itemsize
    return from_bytes(content, tensor, [len(content) // sizes if size < 0 else size for size in part.shape])
