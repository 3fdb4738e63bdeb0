"""How a model behind a server is described, asked and read: its file, the connection, and what each protocol does."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.base.server_connection import Answer
from edgemeter.agent.runtimes import Array
from edgemeter.agent.runtimes.replay import DType
from edgemeter.agent.runtimes.served_tensors import Payload, Reply, ServedDescription, ServerStatistics


class CustomTensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input or output of a server that states none; a size of -1 is open."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    pointer: str = ""
    encoding: Literal["list", "base64", "bytes"] = "list"


class ServedFile(ServerAddress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A served model, as its file describes it; the keys are explained in `edgemeter.agent.runtimes.served`."""

    protocol: Literal["oip", "tf-serving", "custom"]
    transport: Literal["auto", "json", "binary", "grpc"] = "auto"
    model: str | None = None
    version: str | None = None
    signature: str = "serving_default"
    path: str = "/"
    body: Any = None
    inputs: tuple[CustomTensor, ...] = ()
    outputs: tuple[CustomTensor, ...] = ()


class ServerLink(Protocol):
    """A kept-open connection to a server; `ServerConnection` explains what it shows."""

    connect_ns: int | None
    closes: bool

    def ask(self, path: str, content: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to a short request; raises TransientError if there is none."""

    def exchange(self, path: str, content: bytes, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """Return the whole answer to a request, and its headers; raises AnswerError if there is none."""

    def make_ready(self, path: str) -> None:
        """Open the connection unless it is open; raises TransientError if the server does not answer."""

    def another(self) -> "ServerLink":
        """Return another connection to the same server, not opened yet."""

    def close(self) -> None:
        """Close the connection."""


class ServedProtocol(Protocol):
    """How a model behind a server is described, asked and read. `ping_path` answers soon; `model_version` is the last answer's."""

    ping_path: str
    model_version: str | None

    @property
    def form(self) -> str:
        """The protocol and the form of its tensors, as records name them."""

    def describe(self) -> ServedDescription:
        """Return server and model; raises UnavailableError if it is not there or not ready, ConfigError if it cannot be used here."""

    def request(self, inputs: Sequence[Array]) -> Payload:
        """Return the request for these inputs; raises ConfigError if the form cannot hold them."""

    def outputs(self, reply: Reply) -> list[Array]:
        """Return the outputs of an answer; raises AnswerError if it is not what the server declared."""

    def statistics(self) -> ServerStatistics | str:
        """Return the server's own counts, or why there are none; raises TransientError if it does not answer."""
