"""Served: any model behind an HTTP server of the Open Inference Protocol (v2), such as Triton.

Describe the server in a TOML file, such as `yolo.server`. Its model card is `yolo.server.toml`.

    url = "http://127.0.0.1:8000"
    protocol = "oip"
    transport = "auto"                 # json, binary, or auto: binary if the server supports it
    model = "yolo"                     # default: the only one
    version = "3"                      # optional

`api_key_file`, `ca_file`, `headers` and `timeout_s` are the same as for the [generator](#server).

- Timed: from the ready request on an open connection to the last byte of the answer.
- Switch off the server's response cache. FP16 and BF16 need `binary`; BYTES is refused.

Tested with: Triton 2.51 (JSON, binary) and MLServer 1.7.1 (JSON), not KServe nor OpenVINO Model
Server. An arrival (`poisson`) opens a connection of its own, within its latency. FP16 and BF16 are
given as float32. A sample is tests/fixtures/runtimes/served.server.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.base.model_server import Answer, ModelServer
from edgemeter.agent.base.server_address import is_on_this_machine
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Answered, Array, ConcurrentRuntime, Loaded, Options, TensorInfo
from edgemeter.agent.runtimes.adapter import check_inputs, check_options
from edgemeter.agent.runtimes.served_http import PING_PATH, OpenInference, ServedFile
from edgemeter.agent.runtimes.served_tensors import Payload

# The most bytes of cached requests; further ones are made for each query.
_READY_BYTES = 256_000_000
# If the size of an answer to the same request differs by more, it may be an error, and is decoded.
_UNLIKE_RATIO = 0.1
_ERROR = b'"error"'


class ServedModel(ConcurrentRuntime):
    """Runs a model by asking its server."""

    def __init__(self) -> None:
        self._link: Any = None
        self._protocol: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._users: dict[int, ModelServer] = {}
        self._payloads: dict[tuple[int, ...], tuple[Sequence[Array], Payload]] = {}
        self._ready_bytes = 0
        # The size of the last answer to each request that was decoded, by the identity of the
        # request.
        self._decoded: dict[int, int] = {}
        # The last answer that is not suspicious, and one that must be decoded.
        self._last: Answered | None = None
        self._unread: Answered | None = None
        self._version: str | None = None

    def load(self, model: Path, options: Options) -> Loaded:
        check_options("served", options, backends=())
        model_file.head(model)
        file = read_toml(model, ServedFile, "server's file")
        began_ns = time.monotonic_ns()
        link = ModelServer(file, "/v2")
        protocol = OpenInference(link, file)
        try:
            description = protocol.describe()
            load_ns = time.monotonic_ns() - began_ns
        except (AnswerError, UnavailableError) as error:
            link.close()
            raise UnavailableError(f"{str(model)!r}: {error}") from error
        except ConfigError:
            link.close()
            raise
        self._link, self._protocol = link, protocol
        self._version = description.model_version
        self._inputs = tuple(tensor.info for tensor in description.inputs)
        facts = {"server_url": file.url, "served_model": description.model}
        if is_on_this_machine(file.url):
            facts["server_machine"] = "this"
        if link.sock is None:
            # The server closes the connection after each answer, so each query opens one, within
            # the clock.
            facts["connection"] = "closed by the server after each answer"
        return Loaded(
            package=description.server,
            version=description.server_version,
            backend=protocol.form,
            inputs=self._inputs,
            outputs=tuple(tensor.info for tensor in description.outputs),
            metadata={},
            import_ns=0,
            load_ns=load_ns,
            facts=facts,
            # Tensors of a server do not show how its weights are stored.
            precision="unknown",
            threads_reason="the server chooses how many it computes with",
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Make the request, decode a pending answer, open the connection; see `Runtime.bind`."""
        link = self._link
        self._part_from_users()
        if self._unread is not None:
            self.outputs()
        payload = self._payload(inputs)
        link.make_ready(PING_PATH)

        def query() -> Answered:
            answer = self._ask(link, payload)
            if not answer.is_unlike:
                self._last, self._unread = answer, None
                return answer

            def read() -> list[Array]:
                self._unread = None
                outputs = answer.outputs()
                self._last = answer
                return outputs

            self._unread = Answered(read)
            return self._unread

        return query

    def bind_concurrent(
        self, inputs: Sequence[Array], user: int | None = None
    ) -> Callable[[], Answered]:
        link = self._link
        payload = self._payload(inputs)
        # Some servers accept few connections.
        link.close()
        if user is None:

            def query() -> Answered:
                arrival = link.another()
                try:
                    return replace(self._ask(arrival, payload), end=arrival.close)
                except AnswerError:
                    arrival.close()
                    raise

            return query
        if user not in self._users:
            self._users[user] = link.another()
        user_link = self._users[user]
        # If this fails, the query fails, and is counted.
        with suppress(AnswerError):
            user_link.make_ready(PING_PATH)
        return lambda: self._ask(user_link, payload)

    def _ask(self, link: ModelServer, payload: Payload) -> Answered:
        answer = link.exchange(payload.path, payload.content, payload.headers)
        decoded_bytes = self._decoded.get(id(payload))
        is_unlike = (
            decoded_bytes is None
            or abs(len(answer.content) - decoded_bytes) > _UNLIKE_RATIO * decoded_bytes
            or _ERROR in answer.content[:32]
        )
        return Answered(partial(self._decode, answer, id(payload)), is_unlike)

    def _payload(self, inputs: Sequence[Array]) -> Payload:
        key = tuple(map(id, inputs))
        if key in self._payloads:
            return self._payloads[key][1]
        check_inputs(inputs, self._inputs)
        payload: Payload = self._protocol.request(inputs)
        if self._ready_bytes + len(payload.content) <= _READY_BYTES:
            # With the arrays, so that their identities, the key, stay unique.
            self._payloads[key] = inputs, payload
            self._ready_bytes += len(payload.content)
        return payload

    def outputs(self) -> list[Array]:
        answer = self._unread or self._last
        if answer is None:
            raise ConfigError("no query was sent: bind inputs and call first")
        return answer.outputs()

    def _decode(self, reply: Answer, request: int) -> list[Array]:
        outputs: list[Array] = self._protocol.outputs(reply)
        self._decoded[request] = len(reply.content)
        version = self._protocol.model_version or self._version
        if version != self._version and self._version is not None:
            raise MeasurementError(
                f"the server went from version {self._version} of the model to {version}: run "
                "again, without a change"
            )
        self._version = version
        return outputs

    def with_late_facts(self, loaded: Loaded) -> Loaded:
        return (
            replace(loaded, facts={**loaded.facts, "served_model_version": self._version})
            if self._version
            else loaded
        )

    def close(self) -> None:
        self._part_from_users()
        if self._link is not None:
            self._link.close()
        self._link = self._protocol = self._last = self._unread = None
        self._payloads, self._decoded, self._ready_bytes = {}, {}, 0

    def _part_from_users(self) -> None:
        while self._users:
            self._users.popitem()[1].close()
