"""The Open Inference Protocol over gRPC: its messages, encoded and read here, over grpcio, the only part of it that is heavy.

Source: docs/protocol of Triton, grpc_core_service.proto; https://protobuf.dev/programming-guides/encoding/.
"""

import copy
import os
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import AnswerError, TransientError, UnavailableError, one_line
from edgemeter.agent.base.http_client import password_from
from edgemeter.agent.base.server_address import address_parts, has_tls, port_of
from edgemeter.agent.base.server_connection import LARGEST_TENSORS_BYTES, REMEDIES, TENSOR_REMEDIES, Answer, check_headers
from edgemeter.agent.base.tls import OF_ANOTHER_NAME, OF_UNKNOWN_AUTHORITY, server_tls_context
from edgemeter.agent.runtimes import Array
from edgemeter.agent.runtimes.adapter import LibraryCandidate, load_library
from edgemeter.agent.runtimes.served_protocols import ServedFile
from edgemeter.agent.runtimes.served_tensors import (
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
    not_served,
    ready_models,
    served_tensor,
    to_bytes,
    wrong_answer,
)

_LIBRARY = (LibraryCandidate("grpc", ("grpcio",)),)
# Of protobuf: the values of each field by its number.
Message = dict[int, list[Any]]
_SERVICE = "/inference.GRPCInferenceService/"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
# Fields of InferTensorContents, and how the elements of each are packed; varints without a dtype.
_CONTENTS: Mapping[int, str | None] = {1: None, 2: None, 3: None, 4: None, 5: None, 6: "<f4", 7: "<f8"}
_UINT64 = 5
# By the code of an error, and words of its text: the kind of the failure and what to do; the first that fits.
_FAILURES = (
    ("DEADLINE_EXCEEDED", "", "timeout", "raise timeout_s, or read the server's log"),
    ("UNAVAILABLE", "certificate_verify_failed", "no connection", OF_UNKNOWN_AUTHORITY),
    ("UNAVAILABLE", "hostname verification", "no connection", OF_ANOTHER_NAME),
    ("UNAVAILABLE", "wrong_version_number", "no connection", "it does not speak TLS: set url to grpc://"),
    (
        "UNAVAILABLE",
        "failed to connect|resolving|resolution|lookup failed|handshake",
        "no connection",
        "start the server, or correct its url, which is that of the gRPC port",
    ),
    ("UNAVAILABLE", "socket closed|reset by peer|goaway|broken pipe", "broke off", "read the server's log, and check its memory"),
    ("UNAVAILABLE", "", "grpc unavailable", "ask for less at once, or raise the server's limit"),
    ("RESOURCE_EXHAUSTED", "larger than max", "grpc too large", "choose a smaller batch, or raise the server's limit"),
    ("RESOURCE_EXHAUSTED", "", "grpc resource_exhausted", "ask for less at once, or raise the server's limit"),
    ("UNAUTHENTICATED", "", "grpc unauthenticated", REMEDIES[401]),
    ("PERMISSION_DENIED", "", "grpc permission_denied", REMEDIES[403]),
)
_BYTES = [bytes([number]) for number in range(0x80)]
_REMEDIES = {
    "INVALID_ARGUMENT": TENSOR_REMEDIES[400],
    "INTERNAL": "read the server's log",
    "UNIMPLEMENTED": TENSOR_REMEDIES[501],
}
# Of metadata; names that end with -bin are of bytes. Source: grpc/grpc, doc/PROTOCOL-HTTP2.md, Custom-Metadata.
_HEADER = re.compile(r"[0-9a-z_.-]+(?<!-bin):[\x20-\x7e]*")
_NOT_OF_THE_MODEL = ("no answer", "no connection", "broke off", "grpc unauthenticated", "grpc permission_denied")
_BUSY = ("no connection", "grpc unavailable", "grpc resource_exhausted")


def _failure(error: Any) -> tuple[str, str]:
    """Return the name of an RpcError's code, and its details."""
    return error.code().name, one_line(error.details() or "no details")


def _varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return _BYTES[number]
    number &= (1 << 64) - 1
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _head(number: int, content: bytes) -> bytes:
    """Return what stands before the content of a field of bytes."""
    return _varint(number << 3 | _LENGTH) + _varint(len(content))


def _field(number: int, content: bytes | str) -> bytes:
    """Return a field of bytes, of a text or of a message; an empty one too, since an element of a list may be empty."""
    content = content.encode() if isinstance(content, str) else content
    return _head(number, content) + content


def _read_varint(content: memoryview, at: int) -> tuple[int, int]:
    byte = content[at]
    number, shift = byte & 0x7F, 0
    while byte >= 0x80:
        at, shift = at + 1, shift + 7
        byte = content[at]
        number |= (byte & 0x7F) << shift
    return number, at + 1


def message_of(content: memoryview) -> Message:
    """Return the values of each field of a message by its number, in their order: an int of a varint, else its bytes.

    Raises:
        AnswerError: it is no message.
    """
    message: Message = {}
    at, end = 0, len(content)
    try:
        while at < end:
            tag, at = _read_varint(content, at)
            kind = tag & 7
            value: Any
            if kind == _VARINT:
                value, at = _read_varint(content, at)
            else:
                size, at = _read_varint(content, at) if kind == _LENGTH else ({_FIXED64: 8, _FIXED32: 4}[kind], at)
                value, at = content[at : at + size], at + size
            message.setdefault(tag >> 3, []).append(value)
    except (IndexError, KeyError):
        at = -1
    if at != end:
        raise AnswerError("the server answers what is no message of its protocol: check url and transport", kind="no answer")
    return message


def _text(message: Message, number: int) -> str:
    return str(message.get(number, [b""])[0], "utf-8", "replace")


def _integers(message: Message, number: int) -> list[int]:
    """Return a list of integers, packed or not, as signed ones of 64 bits."""
    numbers: list[int] = []
    for value in message.get(number, []):
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            element, at = _read_varint(value, at)
            numbers.append(element)
    return [element - (1 << 64) if element >> 63 else element for element in numbers]


class GrpcConnection:
    """A channel of its own to the server, as a `ServerLink`: the path of a request is the name of the method."""

    def __init__(self, file: ServedFile) -> None:
        parts = address_parts(file.url, ("grpc", "grpcs", "http", "https"))
        # What it logs its errors say too.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self._file, self._grpc = file, load_library(_LIBRARY, "grpc").module
        self._target = f"{f'[{parts.hostname}]' if ':' in str(parts.hostname) else parts.hostname}:{port_of(parts)}"
        self._credentials = self._grpc.ssl_channel_credentials(self._authority()) if has_tls(parts) else None
        key = password_from(file.api_key_file, f"the server {file.url!r}", "api_key_file") if file.api_key_file else None
        bearer = {"authorization": f"Bearer {key}"} if key else {}
        self._metadata = [*((name.lower(), value) for name, value in file.headers.items()), *bearer.items()]
        check_headers(dict(self._metadata), file.url, _HEADER)
        # A channel connects by itself, and stays open.
        self.connect_ns: int | None = None
        self.closes = False
        self._channel: Any = None
        self._methods: dict[str, Any] = {}

    def _call(self, path: str, content: bytes) -> bytes:
        if self._channel is None:
            sizes = [(f"grpc.max_{kind}_message_length", LARGEST_TENSORS_BYTES) for kind in ("receive", "send")]
            # Otherwise channels to one address share a connection, and what failed is sent again, as a query never is.
            options = [*sizes, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]
            if self._credentials is not None:
                self._channel = self._grpc.secure_channel(self._target, self._credentials, options)
            else:
                self._channel = self._grpc.insecure_channel(self._target, options)
        if path not in self._methods:
            self._methods[path] = self._channel.unary_unary(path)
        answer: bytes = self._methods[path](content, timeout=self._file.timeout_s, metadata=self._metadata)
        return answer

    def _authority(self) -> bytes | None:
        """Return the authorities of the file, or of this machine, which the library does not ask for; None: those that it brings."""
        server_tls_context(self._file.ca_file)
        path = self._file.ca_file or ssl.get_default_verify_paths().cafile
        return Path(path).expanduser().read_bytes() if path else None

    def exchange(self, path: str, content: bytes, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """See `ServerLink.exchange`."""
        try:
            return self._call(path, content), headers
        except self._grpc.RpcError as error:
            code, details = _failure(error)
            kind, remedy = next(
                ((kind, remedy) for name, words, kind, remedy in _FAILURES if name == code and re.search(words, details, re.IGNORECASE)),
                (f"grpc {code.lower()}", _REMEDIES.get(code, "check model and version of the server's file, or read the server's log")),
            )
            if kind in ("no connection", "broke off"):
                # Until its own wait is over, which grows, the channel would fail what is asked of a server that is back.
                self.close()
            raise AnswerError(f"no answer from {self._file.url} ({code}: {details}): {remedy}", kind=kind, is_busy=kind in _BUSY) from error

    def ask(self, path: str, content: Mapping[str, Any] | None = None) -> Answer:
        """Call a method without a request, which tells that the server is there; see `ServerLink.ask`."""
        began_ns = time.monotonic_ns()
        try:
            answer, _ = self.exchange(path, b"", content or {})
        except AnswerError as error:
            raise TransientError(str(error)) from error
        return Answer(200, {}, (time.monotonic_ns() - began_ns) / 1e6, answer)

    def make_ready(self, path: str) -> None:
        """See `ServerLink.make_ready`: a channel opens by itself, and is kept open by its library."""
        if self._channel is None:
            self.ask(path)

    def another(self) -> "GrpcConnection":
        """See `ServerLink.another`; key and authorities are shared."""
        twin = copy.copy(self)
        twin._channel, twin._methods = None, {}  # noqa: SLF001 - of this class
        return twin

    def close(self) -> None:
        """Close the channel; the next request opens another."""
        if self._channel is not None:
            self._channel.close()
        self._channel, self._methods = None, {}


class GrpcInference:
    """The Open Inference Protocol over gRPC; its tensors travel as bytes (`raw_input_contents`)."""

    form = "oip,grpc"
    ping_path = f"{_SERVICE}ServerReady"

    def __init__(self, link: GrpcConnection, file: ServedFile) -> None:
        self._link, self._file = link, file
        self._inputs: tuple[ServedTensor, ...] = ()
        self._outputs: tuple[ServedTensor, ...] = ()
        # Of a request the parts that are always the same.
        self._model = self._requested = b""
        self._names: Sequence[bytes] = ()
        self.model_version: str | None = None

    def describe(self) -> ServedDescription:
        """See `ServedProtocol.describe`."""
        server = message_of(memoryview(self._link.ask(f"{_SERVICE}ServerMetadata").content))
        model = self._file.model
        if model is None:
            models = self._models()
            if len(names := ready_models(models)) != 1:
                raise not_served(None, None, models, self._file.url, "")
            model = names[0]
        self._model = _field(1, model) + (_field(2, self._file.version) if self._file.version else b"")
        try:
            metadata = self._ask("ModelMetadata")
        except AnswerError as error:
            if error.kind in _NOT_OF_THE_MODEL:
                raise
            raise not_served(model, self._file.version, self._models(), self._file.url, " ".join(_failure(error.__cause__))) from error
        if not any(self._ask("ModelReady").get(1, [])):
            raise UnavailableError(f"{self._file.url} has the model {model!r}, but it is not ready: wait, or read its log")
        self._inputs, self._outputs = (tuple(map(_declared, metadata.get(number, []))) for number in (4, 5))
        check_stated(model, self._inputs, self._outputs)
        self._names = [_field(1, tensor.info.name) + _field(2, tensor.datatype) for tensor in self._inputs]
        self._requested = b"".join(_field(6, _field(1, tensor.info.name)) for tensor in self._outputs)
        versions = [bytes(version).decode() for version in metadata.get(2, [])]
        version = self._file.version or (versions[0] if len(versions) == 1 else None)
        name, server_version = (_text(server, number) or "unknown" for number in (1, 2))
        return ServedDescription(name, server_version, model, self._inputs, self._outputs, version)

    def _models(self) -> list[ListedModel]:
        try:
            index = message_of(memoryview(self._link.ask(f"{_SERVICE}RepositoryIndex").content))
        except TransientError:
            return []
        return [ListedModel(*(_text(entry, number) for number in (1, 2, 3, 4))) for entry in map(message_of, index.get(1, []))]

    def request(self, inputs: Sequence[Array]) -> Payload:
        """See `ServedProtocol.request`."""
        tensors: list[bytes] = []
        contents: list[bytes] = []
        for array, tensor, name in zip(inputs, self._inputs, self._names, strict=True):
            content = to_bytes(array, tensor.datatype)
            tensors.append(_field(5, name + _field(3, b"".join(map(_varint, array.shape)))))
            contents += _head(7, content), content
        return Payload(f"{_SERVICE}ModelInfer", b"".join((self._model, *tensors, self._requested, *contents)), {})

    def outputs(self, reply: Reply) -> list[Array]:
        """See `ServedProtocol.outputs`."""
        answer = message_of(memoryview(reply.content))
        self.model_version = _text(answer, 2) or None
        raw = iter(answer.get(6, []))
        arrays = {}
        for content in answer.get(5, []):
            output = message_of(content)
            arrays[_text(output, 1)] = output, next(raw, None)
        return [_read(tensor, *arrays.get(tensor.info.name, (None, None))) for tensor in self._outputs]

    def _ask(self, method: str) -> Message:
        """Return the answer to a request that names the model alone."""
        return message_of(memoryview(self._link.exchange(_SERVICE + method, self._model, {})[0]))

    def statistics(self) -> ServerStatistics | str:
        """See `ServedProtocol.statistics`."""
        try:
            answer = self._ask("ModelStatistics")
        except AnswerError as error:
            return f"the server states no statistics of its own ({error.kind})."
        return sum((_counts(stats) for model in answer.get(1, []) for stats in message_of(model).get(6, [])), NO_REQUESTS)


def _declared(content: memoryview) -> ServedTensor:
    message = message_of(content)
    return served_tensor(_text(message, 1), _text(message, 2), _integers(message, 3))


def _counts(stats: memoryview) -> ServerStatistics:
    """Return the counts of an InferStatistics: success 1, queue 3, compute 4 to 6, cache_hit 7; each has a count (1) and ns (2)."""
    parts = {number: message_of(values[0]) for number, values in message_of(stats).items()}

    def value(number: int, field: int) -> int:
        return int(parts.get(number, {}).get(field, [0])[0])

    return ServerStatistics(value(1, 1), value(3, 2), sum(value(number, 2) for number in (4, 5, 6)), value(7, 1))


def _read(tensor: ServedTensor, output: Message | None, raw: memoryview | None) -> Array:
    if output is None:
        raise wrong_answer(tensor.info, "is not in the answer")
    if (datatype := _text(output, 2)) != tensor.datatype:
        raise wrong_answer(tensor.info, f"comes as {datatype}, the server declares {tensor.datatype}")
    shape = _integers(output, 3)
    if raw is not None:
        return checked(from_bytes(raw, tensor, shape), tensor.info)
    values: list[Any] = []
    contents = message_of(output[5][0]) if 5 in output else {}
    for number, parts in contents.items():
        dtype = _CONTENTS.get(number)
        numbers = np.frombuffer(b"".join(parts), dtype).tolist() if dtype else _integers(contents, number)
        values += [element % (1 << 64) for element in numbers] if number == _UINT64 else numbers
    return checked(from_list(values, tensor.info, shape), tensor.info)
