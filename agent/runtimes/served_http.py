"""The Open Inference Protocol (v2) over HTTP, with tensors in JSON or as bytes after it.

Source: https://github.com/triton-inference-server/server/tree/main/docs/protocol.
"""

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.model_server import Answer, ModelServer
from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.runtimes import Array
from edgemeter.agent.runtimes.served_tensors import (
    ListedModel,
    Payload,
    ServedDescription,
    ServedTensor,
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

_BINARY = {"Content-Type": "application/octet-stream"}
_HEAD_BYTES = "Inference-Header-Content-Length"
PING_PATH = "/v2/health/ready"


class ServedFile(ServerAddress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A served model, as its file describes it.

    The keys are explained in `edgemeter.agent.runtimes.served`.
    """

    protocol: Literal["oip"]
    transport: Literal["auto", "json", "binary"] = "auto"
    model: str | None = None
    version: str | None = None


class _OipTensor(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]


class _OipMetadata(msgspec.Struct):
    inputs: list[_OipTensor] | None = None
    outputs: list[_OipTensor] | None = None
    versions: list[str] | None = None


class _OipOutput(_OipTensor):
    data: Any = None
    parameters: dict[str, Any] | None = None


class _OipAnswer(msgspec.Struct):
    outputs: list[_OipOutput]
    model_version: str | None = None


class OpenInference:
    """A model behind the protocol, with Triton's extension binary_tensor_data.

    `model_version` is that of the last answer.
    """

    def __init__(self, link: ModelServer, file: ServedFile) -> None:
        self._link, self._file = link, file
        self._path, self._is_binary = "", file.transport == "binary"
        self._inputs: tuple[ServedTensor, ...] = ()
        self._outputs: tuple[ServedTensor, ...] = ()
        self.model_version: str | None = None

    @property
    def form(self) -> str:
        """The protocol and the form of tensors."""
        return f"oip,{'binary' if self._is_binary else 'json'}"

    def describe(self) -> ServedDescription:
        """Return server and model.

        Raises:
            UnavailableError: they are absent or not ready.
            ConfigError: they cannot be used.
        """
        server = self._link.ask("/v2").document
        if self._file.transport == "auto":
            self._is_binary = "binary_tensor_data" in (server.get("extensions") or ())
        model = self._file.model or self._only_model()
        self._path = f"/v2/models/{quote(model, safe='')}" + (
            f"/versions/{quote(self._file.version)}" if self._file.version else ""
        )
        answer = self._link.ask(self._path)
        self._check_described(answer, model)
        if (ready := self._link.ask(f"{self._path}/ready")).status != 200:
            raise UnavailableError(
                f"{self._file.url} has the model {model!r}, but it is not ready "
                f"({ready.reason or f'status {ready.status}'}): wait, or read its log"
            )
        try:
            metadata = msgspec.convert(answer.document, _OipMetadata)
        except msgspec.ValidationError as error:
            raise UnavailableError(
                f"{self._file.url} describes {model!r} in another form than the protocol's "
                f"({error}): check its url"
            ) from error
        remedy = "" if self._is_binary else 'set transport = "binary", if the server supports it'
        self._inputs, self._outputs = (
            tuple(
                served_tensor(tensor.name, tensor.datatype, tensor.shape, json_remedy=remedy)
                for tensor in tensors or ()
            )
            for tensors in (metadata.inputs, metadata.outputs)
        )
        check_stated(model, self._inputs, self._outputs)
        version = self._file.version or (
            metadata.versions[0] if metadata.versions and len(metadata.versions) == 1 else None
        )
        name, server_version = (str(server.get(key) or "unknown") for key in ("name", "version"))
        return ServedDescription(name, server_version, model, self._inputs, self._outputs, version)

    def _check_described(self, answer: Answer, model: str) -> None:
        """Raise UnavailableError unless this is the description of a model.

        For an unknown model Triton answers 400, others 404.
        """
        file = self._file
        if answer.status in (400, 404):
            raise not_served(
                model,
                file.version,
                self._models(),
                file.url,
                answer.reason or f"status {answer.status}",
            )
        if answer.status != 200:
            raise UnavailableError(str(self._link.refusal(self._path, answer)))
        if not answer.document:
            raise UnavailableError(
                f"{file.url} is not a server of this protocol ({self._path} answers "
                f"{answer.content[:30].decode(errors='replace')!r}): "
                "check url and protocol of the server's file"
            )

    def _only_model(self) -> str:
        models = self._models()
        if len(names := ready_models(models)) != 1:
            raise not_served(None, None, models, self._file.url, "")
        return names[0]

    def _models(self) -> list[ListedModel]:
        try:
            return decode_json(
                self._link.ask("/v2/repository/index", {}).content, list[ListedModel]
            )
        except msgspec.MsgspecError:
            return []

    def request(self, inputs: Sequence[Array]) -> Payload:
        """Return the request for these inputs.

        Raises:
            ConfigError: the form cannot represent them.
        """
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
        head = msgspec.json.encode(
            {
                "inputs": tensors,
                "outputs": [{"name": tensor.info.name, **form} for tensor in self._outputs],
            }
        )
        headers = _BINARY | {_HEAD_BYTES: str(len(head))} if self._is_binary else {}
        return Payload(f"{self._path}/infer", b"".join((head, *contents)), headers)

    def outputs(self, reply: Answer) -> list[Array]:
        """Return the outputs of an answer.

        Raises:
            AnswerError: the answer is not what the server declared.
        """
        size_text = reply.headers.get(_HEAD_BYTES.lower(), "")
        head_bytes = int(size_text) if size_text.isdecimal() else len(reply.content)
        answer = json_document(reply.content[:head_bytes], _OipAnswer)
        self.model_version = answer.model_version or None
        content, at = memoryview(reply.content), head_bytes
        arrays = {}
        for output in answer.outputs:
            size = (output.parameters or {}).get("binary_data_size")
            arrays[output.name] = (
                output,
                content[at : at + size] if isinstance(size, int) else output.data,
            )
            at += size if isinstance(size, int) else 0
        return [
            self._read(tensor, *arrays.get(tensor.info.name, (None, None)))
            for tensor in self._outputs
        ]

    def _read(self, tensor: ServedTensor, output: _OipOutput | None, data: Any) -> Array:
        if output is None or data is None:
            raise wrong_answer(tensor.info, "is not in the answer")
        if output.datatype != tensor.datatype:
            raise wrong_answer(
                tensor.info, f"comes as {output.datatype}, the server declares {tensor.datatype}"
            )
        array = (
            from_bytes(data, tensor, output.shape)
            if isinstance(data, memoryview)
            else from_list(data, tensor.info, output.shape)
        )
        return checked(array, tensor.info)
