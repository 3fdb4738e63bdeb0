"""Served: any model behind a server: Triton, OpenVINO Model Server, KServe, MLServer, TorchServe, TensorFlow Serving, or another.

The model is a TOML file `NAME.server` (samples: tests/fixtures/runtimes/served*.server); a card may stand beside it:

    url = "http://127.0.0.1:8000"      of gRPC its port
    protocol = "oip"                   oip (Open Inference Protocol, v2), tf-serving (REST) or custom
    transport = "auto"                 oip: json, binary (Triton's tensors), grpc; auto: binary where the server states it
    model = "yolo"                     oip: default: the only one
    version = "3"                      optional
    signature = "serving_default"      tf-serving
    api_key_file, ca_file, headers, timeout_s    optional, as of the generator `server`
    path = "/predict"                  custom
    body = { image = "{images}" }      custom: "{NAME}" is an input as lists, "{NAME:base64}" its bytes; "{NAME:bytes}" alone
    [[inputs]]                         custom: name, dtype, shape; of outputs also pointer (JSON) and encoding (list, base64, bytes)

Timed: from the ready request on an open connection to the last byte of the answer; `encode` and `decode` apart. Triton states its
queue and compute times (`served`); a run that its response cache answers ends. FP16 and BF16 (as float32) need bytes; BYTES are refused.
Needs no library (tritonclient would bring 90 MB); grpc the extra `grpc`.
Run here: MLServer 1.7.1 (JSON, gRPC). By contract: binary tensors and statistics, checked with tritonclient 2.73; TensorFlow Serving.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, TransientError, UnavailableError, one_line
from edgemeter.agent.base.server_connection import ServerConnection
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.record_figures import Stage
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.runtimes import Array, ConcurrentAnswer, Loaded, Options, served_grpc
from edgemeter.agent.runtimes.adapter import check_inputs, check_options
from edgemeter.agent.runtimes.served_http import Custom, OpenInference, TensorFlowServing
from edgemeter.agent.runtimes.served_protocols import ServedFile, ServedProtocol, ServerLink
from edgemeter.agent.runtimes.served_tensors import Payload, Reply, ServedDescription, ServerStatistics

_PINGS = 9
_PROTOCOLS: Mapping[str, Callable[[ServerLink, ServedFile], ServedProtocol]] = {
    "oip": OpenInference,
    "tf-serving": TensorFlowServing,
    "custom": Custom,
}
_ERROR = b'"error"'
# Requests that are kept ready, in all; what exceeds it is made for each query.
_READY_BYTES = 256_000_000
# An answer to the same request whose size differs by more may be another thing: it is decoded.
_UNLIKE_RATIO = 0.1
_WITHOUT_WINDOW = "no queries were timed."


class ServedModel:
    """Runs a model by asking its server."""

    def __init__(self) -> None:
        self._open: tuple[ServerLink, ServedProtocol, ServedDescription] | None = None
        self._loaded: Loaded | None = None
        self._users: dict[int, ServerLink] = {}
        self._payloads: dict[tuple[int, ...], tuple[Sequence[Array], Payload]] = {}
        self._ready_bytes = 0
        # The size of the last answer to each request that was decoded, by the identity of the request; of `bind` the
        # last that is sound, as far as is known, and the one that has to be read.
        self._decoded: dict[int, int] = {}
        self._last: ConcurrentAnswer | None = None
        self._unread: ConcurrentAnswer | None = None
        self._encode_ns: list[int] = []
        self._decode_ns: list[int] = []
        self._bytes = 0, 0
        self._round_trip_ms = 0.0
        self._is_here = False
        self._version: str | None = None
        # Of the timed window: how long each answered request took, and what the server counted.
        self._took_ns: list[int] = []
        self._counted: ServerStatistics | str = _WITHOUT_WINDOW

    def load(self, model: Path, options: Options) -> Loaded:
        """Ask the server for the model's inputs and outputs; see `Runtime.load`."""
        check_options("served", options, backends=())
        model_file.head(model)
        file = read_toml(model, ServedFile, "server's file")
        began_ns = time.monotonic_ns()
        link, protocol, import_ns = _connected(file)
        try:
            description = protocol.describe()
            pings = [link.ask(protocol.ping_path).took_ms for _ in range(_PINGS)]
            self._is_here = link.is_to_this_machine()
        except (TransientError, UnavailableError) as error:
            link.close()
            raise UnavailableError(f"{str(model)!r}: {error}") from error
        except ConfigError:
            link.close()
            raise
        self._open, self._version = (link, protocol, description), description.model_version
        self._round_trip_ms = statistics.median(pings)
        self._loaded = Loaded(
            package=description.server,
            version=description.server_version,
            backend=protocol.form,
            inputs=tuple(tensor.info for tensor in description.inputs),
            outputs=tuple(tensor.info for tensor in description.outputs),
            metadata={},
            import_ns=import_ns,
            load_ns=time.monotonic_ns() - began_ns - import_ns,
            facts={"server_url": file.url} | ({"server_machine": "this"} if self._is_here else {}),
            # Tensors of a server do not show how its weights are stored.
            precision="unknown",
        )
        return self._loaded

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Make the request, decode what has not been looked at, and open the connection; see `Runtime.bind`."""
        link, protocol, _ = self._opened()
        self._part_from_users()
        if self._unread is not None:
            self.outputs()
        payload = self._payload(inputs)
        try:
            link.make_ready(protocol.ping_path)
        except TransientError as error:
            raise AnswerError(str(error), kind="no connection", is_busy=True) from error

        def query() -> ConcurrentAnswer:
            answer = self._ask(link, payload)
            if not answer.is_unlike:
                self._last, self._unread = answer, None
                return answer

            def read() -> list[Array]:
                self._unread = None
                outputs = answer.outputs()
                self._last = answer
                return outputs

            self._unread = ConcurrentAnswer(read, is_unlike=True)
            return self._unread

        return query

    def bind_concurrent(self, inputs: Sequence[Array], user: int | None = None) -> Callable[[], ConcurrentAnswer]:
        """Make the request of one query on the user's own connection; see `ConcurrentRuntime.bind_concurrent`."""
        link, protocol, _ = self._opened()
        payload = self._payload(inputs)
        # Some servers have few places for connections.
        link.close()
        if user is None:

            def query() -> ConcurrentAnswer:
                arrival = link.another()
                try:
                    return self._ask(arrival, payload)
                finally:
                    arrival.close()

            return query
        if user not in self._users:
            self._users[user] = link.another()
        user_link = self._users[user]
        # The query itself fails then, and is counted.
        with suppress(TransientError):
            user_link.make_ready(protocol.ping_path)
        return lambda: self._ask(user_link, payload)

    def _ask(self, link: ServerLink, payload: Payload) -> ConcurrentAnswer:
        began_ns = time.monotonic_ns()
        content, headers = link.exchange(payload.path, payload.content, payload.headers)
        self._took_ns.append(time.monotonic_ns() - began_ns)
        decoded_bytes = self._decoded.get(id(payload))
        is_unlike = decoded_bytes is None or abs(len(content) - decoded_bytes) > _UNLIKE_RATIO * decoded_bytes or _ERROR in content[:32]
        return ConcurrentAnswer(partial(self._decode, Reply(content, headers), id(payload)), is_unlike)

    def _payload(self, inputs: Sequence[Array]) -> Payload:
        """Return the request for these inputs: one that was made before, where there was room for it."""
        key = tuple(map(id, inputs))
        if key in self._payloads:
            return self._payloads[key][1]
        _, protocol, description = self._opened()
        check_inputs(inputs, [tensor.info for tensor in description.inputs])
        began_ns = time.monotonic_ns()
        payload = protocol.request(inputs)
        self._encode_ns.append(time.monotonic_ns() - began_ns)
        if self._ready_bytes + len(payload.content) <= _READY_BYTES:
            # With the arrays, whose identity is the key.
            self._payloads[key] = inputs, payload
            self._ready_bytes += len(payload.content)
        self._bytes = max(self._bytes[0], len(payload.content)), self._bytes[1]
        return payload

    def outputs(self) -> list[Array]:
        """Decode the last answer; see `Runtime.outputs`."""
        answer = self._unread or self._last
        if answer is None:
            raise ConfigError("no query was sent: bind inputs and call first")
        return answer.outputs()

    def _decode(self, reply: Reply, request: int) -> list[Array]:
        _, protocol, _ = self._opened()
        began_ns = time.monotonic_ns()
        outputs = protocol.outputs(reply)
        self._decoded[request] = len(reply.content)
        self._decode_ns.append(time.monotonic_ns() - began_ns)
        self._bytes = self._bytes[0], max(self._bytes[1], len(reply.content))
        version = protocol.model_version or self._version
        if version != self._version and self._version is not None:
            raise MeasurementError(f"the server went from version {self._version} of the model to {version}: run again, without a change")
        self._version = version
        return outputs

    @contextmanager
    def window(self) -> Iterator[None]:
        """Note what the server counts of the queries in the block; see `WatchedRuntime.window`."""
        _, protocol, _ = self._opened()
        before = _statistics(protocol)
        self._took_ns = []
        yield
        after = _statistics(protocol)
        self._counted = after - before if not isinstance(after, str) and not isinstance(before, str) else str(after)
        if not isinstance(self._counted, str) and self._counted.cache_hits > 0:
            raise MeasurementError(
                f"the server answered {self._counted.cache_hits} of {len(self._took_ns)} queries from its response cache, without the "
                "model: switch the cache off for this model (Triton: response_cache)"
            )

    def served(self) -> Served:
        """Return what travelled, and the server's own times; see `WatchedRuntime.served`."""
        _, protocol, description = self._opened()
        answered = len(self._took_ns)
        served = Served(
            protocol=protocol.form,
            server=description.server,
            server_version=description.server_version,
            model=description.model,
            model_version=self._version,
            is_here=self._is_here,
            encode=_stage(self._encode_ns),
            decode=_stage(self._decode_ns),
            request_bytes=self._bytes[0],
            response_bytes=self._bytes[1],
            network_round_trip_ms=self._round_trip_ms,
        )
        if isinstance(self._counted, str):
            return msgspec.structs.replace(served, server_reason=self._counted)
        if not self._counted.requests:
            return msgspec.structs.replace(served, server_reason="the server counted no request in the timed part.")
        queue_ms, compute_ms = (ns / self._counted.requests / 1e6 for ns in (self._counted.queue_ns, self._counted.compute_ns))
        is_ours = self._counted.requests == answered
        return msgspec.structs.replace(
            served,
            server_queue_ms=queue_ms,
            server_compute_ms=compute_ms,
            remainder_ms=sum(self._took_ns) / answered / 1e6 - queue_ms - compute_ms if is_ours else None,
            requests_of_others=max(self._counted.requests - answered, 0),
        )

    def close(self) -> None:
        """Close the connections."""
        self._part_from_users()
        if self._open is not None:
            self._open[0].close()
        self._open = self._loaded = self._last = self._unread = None
        self._payloads, self._decoded, self._ready_bytes = {}, {}, 0

    def _part_from_users(self) -> None:
        while self._users:
            self._users.popitem()[1].close()

    def _opened(self) -> tuple[ServerLink, ServedProtocol, ServedDescription]:
        if self._open is None:
            raise ConfigError("no server is known: load its file first")
        return self._open


def _connected(file: ServedFile) -> tuple[ServerLink, ServedProtocol, int]:
    """Return a connection, not opened yet, with the protocol spoken on it, and the ns that an import took."""
    if file.transport != "auto" and file.protocol != "oip":
        raise ConfigError(f"the server's file of {file.url} sets transport, which protocol {file.protocol} does not have: leave it out")
    if file.transport == "grpc":
        began_ns = time.monotonic_ns()
        grpc_link = served_grpc.GrpcConnection(file)
        return grpc_link, served_grpc.GrpcInference(grpc_link, file), time.monotonic_ns() - began_ns
    link = ServerConnection.to(file)
    return link, _PROTOCOLS[file.protocol](link, file), 0


def _statistics(protocol: ServedProtocol) -> ServerStatistics | str:
    try:
        return protocol.statistics()
    except TransientError as error:
        return f"the server's own statistics were not read: {one_line(error)[:120]}."


def _stage(took_ns: Sequence[int]) -> Stage | None:
    if not took_ns:
        return None
    took_ms = np.asarray(took_ns) / 1e6
    p50_ms, p90_ms = np.percentile(took_ms, (50, 90))
    return Stage(count=len(took_ns), mean_ms=float(took_ms.mean()), p50_ms=float(p50_ms), p90_ms=float(p90_ms))
