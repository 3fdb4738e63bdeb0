"""Served: any model behind a server: Triton, OpenVINO Model Server, KServe, MLServer, TensorFlow Serving, or another.

A TOML file `NAME.server` with `protocol` (samples: tests/fixtures/runtimes/served*.server) is the model; a card, `NAME.server.toml`, may
stand beside it:

    url = "http://127.0.0.1:8000"      of gRPC its port
    protocol = "oip"                   oip (Open Inference Protocol, v2), tf-serving (REST) or custom
    transport = "auto"                 oip: json, binary (Triton's tensors), grpc; auto: binary where the server states it
    model = "yolo"                     oip: default: the only one
    version = "3"                      optional
    signature = "serving_default"      tf-serving
    api_key_file, ca_file, headers, timeout_s    optional, as of the generator `server`
    path = "/predict"                  custom
    body = { image = "{images}" }      custom: "{NAME}" is an input as lists, "{NAME:base64}" its bytes; "{NAME:bytes}" alone
    [[inputs]], [[outputs]]            custom: name, dtype, shape; outputs: pointer (JSON), encoding (list, base64, bytes)

Timed: from the ready request on an open connection to the last byte of the answer; an arrival (`poisson`) opens one within its latency
(`connect`; gRPC states none). Triton states queue and compute times (`served`); its response cache ends a run. FP16 and BF16 (given as
float32) need `binary` or `grpc`; the type BYTES is refused.
Needs no library; grpc the extra `grpc`.
Run here: Triton 2.51 (JSON, binary, gRPC, statistics), MLServer 1.7.1 (JSON, gRPC). Not run: TensorFlow Serving, KServe, OpenVINO Model
Server.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, TransientError, UnavailableError, one_line
from edgemeter.agent.base.server_address import is_on_this_machine
from edgemeter.agent.base.server_connection import ServerConnection
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.record_figures import Stage
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.runtimes import Answered, Array, Loaded, Options, TensorInfo, served_grpc
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
# Requests that are kept ready, in all; what exceeds it is made for each query.
_READY_BYTES = 256_000_000
# An answer to the same request whose size differs by more may be another thing: it is decoded.
_UNLIKE_RATIO = 0.1
_ERROR = b'"error"'
# A server may count a request behind its answer, Triton by some tens of milliseconds: so long, all that it answered is waited for.
_COUNTS_WITHIN_S = 1.0
# Of the answered requests.
_FEWEST_COUNTED_RATIO = 0.99
# Looks at its counts until they rest, and the time between.
_LOOKS = 5
_LOOK_S = 0.05
_CLOSES = "closed by the server after each answer"


@dataclass(slots=True)
class _Window:
    """Of some queries: how long each answered one took, the kinds of those that failed, the openings of a connection, the server's count.

    Several users append at once. `failed`: without refusals; the server may count each, as Triton does an error of the model.
    `by_arrival`: each opens a connection.
    """

    took_ns: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    connect_ns: list[int] = field(default_factory=list)
    by_arrival: bool = False
    counted: ServerStatistics | str = "no queries were timed."


class ServedModel:
    """Runs a model by asking its server."""

    def __init__(self) -> None:
        self._open: tuple[ServerLink, ServedProtocol, ServedDescription] | None = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._users: dict[int, ServerLink] = {}
        self._payloads: dict[tuple[int, ...], tuple[Sequence[Array], Payload]] = {}
        self._ready_bytes = 0
        # The size of the last answer to each request that was decoded, by the identity of the request.
        self._decoded: dict[int, int] = {}
        # Of `bind` the last that is sound, as far as is known, and one that has to be decoded.
        self._last: Answered | None = None
        self._unread: Answered | None = None
        self._encode_ns: list[int] = []
        self._decode_ns: list[int] = []
        self._bytes = 0, 0
        self._round_trip_ms = 0.0
        self._is_here: bool | None = None
        self._version: str | None = None
        # What queries go into now, and the last that was timed; the server's counts when the first began.
        self._window = self._timed = _Window()
        self._counts: ServerStatistics | str = ""

    def load(self, model: Path, options: Options) -> Loaded:
        """Ask the server for the model's inputs and outputs; see `Runtime.load`."""
        check_options("served", options, backends=())
        model_file.head(model)
        file = read_toml(model, ServedFile, "server's file")
        began_ns = time.monotonic_ns()
        link, protocol, import_ns = _connected(file)
        try:
            description = protocol.describe()
            load_ns = time.monotonic_ns() - began_ns - import_ns
            self._counts, self._window = _statistics(protocol), _Window()
            pings = [link.ask(protocol.ping_path).took_ms for _ in range(_PINGS)]
        except (AnswerError, TransientError, UnavailableError) as error:
            link.close()
            raise UnavailableError(f"{str(model)!r}: {error}") from error
        except ConfigError:
            link.close()
            raise
        self._open, self._version = (link, protocol, description), description.model_version
        self._round_trip_ms, self._is_here = statistics.median(pings), is_on_this_machine(file.url)
        self._inputs = tuple(tensor.info for tensor in description.inputs)
        return Loaded(
            package=description.server,
            version=description.server_version,
            backend=protocol.form,
            inputs=self._inputs,
            outputs=tuple(tensor.info for tensor in description.outputs),
            metadata={},
            import_ns=import_ns,
            load_ns=load_ns,
            facts={"server_url": file.url} | ({"server_machine": "this"} if self._is_here else {}),
            # Tensors of a server do not show how its weights are stored.
            precision="unknown",
            threads_reason="the server chooses how many it computes with",
        )

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

    def bind_concurrent(self, inputs: Sequence[Array], user: int | None = None) -> Callable[[], Answered]:
        """Make the request of one query on the user's own connection; see `ConcurrentRuntime.bind_concurrent`."""
        link, protocol, _ = self._opened()
        payload = self._payload(inputs)
        # Some servers have few places for connections.
        link.close()
        if user is None:
            self._window.by_arrival = True

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
        # The query itself fails then, and is counted.
        with suppress(TransientError):
            user_link.make_ready(protocol.ping_path)
        return lambda: self._ask(user_link, payload)

    def _ask(self, link: ServerLink, payload: Payload) -> Answered:
        began_ns = time.monotonic_ns()
        try:
            content, headers = link.exchange(payload.path, payload.content, payload.headers)
        except AnswerError as error:
            if not error.is_busy:
                self._window.failed.append(error.kind)
            raise
        self._window.took_ns.append(time.monotonic_ns() - began_ns)
        if link.connect_ns is not None:
            self._window.connect_ns.append(link.connect_ns)
        decoded_bytes = self._decoded.get(id(payload))
        is_unlike = decoded_bytes is None or abs(len(content) - decoded_bytes) > _UNLIKE_RATIO * decoded_bytes or _ERROR in content[:32]
        return Answered(partial(self._decode, Reply(content, headers), id(payload)), is_unlike)

    def _payload(self, inputs: Sequence[Array]) -> Payload:
        """Return the request for these inputs: one that was made before, where there was room for it."""
        key = tuple(map(id, inputs))
        if key in self._payloads:
            return self._payloads[key][1]
        _, protocol, _ = self._opened()
        check_inputs(inputs, self._inputs)
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
        before = _counted(protocol, self._counts, len(self._window.took_ns))
        self._window = self._timed = timed = _Window()
        yield
        self._window = _Window()
        self._counts = _counted(protocol, before, len(timed.took_ns))
        timed.counted = _between(before, self._counts, len(timed.took_ns))
        if not isinstance(timed.counted, str) and timed.counted.cache_hits > 0:
            raise MeasurementError(
                f"the server answered {timed.counted.cache_hits} of {len(timed.took_ns)} queries from its response cache, without the "
                "model: switch the cache off for this model (Triton: response_cache)"
            )

    def with_late_facts(self, loaded: Loaded) -> Loaded:
        """Return what was loaded with whether the server ends its connections; see `LateFacts`."""
        timed = self._timed
        ends = not timed.by_arrival and len(timed.connect_ns) > len(timed.took_ns) / 2
        return replace(loaded, facts={**loaded.facts, "connection": _CLOSES}) if ends else loaded

    def served(self) -> Served:
        """Return what travelled, and the server's own times; see `WatchedRuntime.served`."""
        _, protocol, description = self._opened()
        took_ns, counted = self._timed.took_ns, self._timed.counted
        served = Served(
            protocol=protocol.form,
            server=description.server,
            server_version=description.server_version,
            model=description.model,
            model_version=self._version,
            is_here=self._is_here,
            encode=_stage(self._encode_ns),
            decode=_stage(self._decode_ns),
            connect=_stage(self._timed.connect_ns),
            request_bytes=self._bytes[0],
            response_bytes=self._bytes[1],
            network_round_trip_ms=self._round_trip_ms,
        )
        if isinstance(counted, str):
            return msgspec.structs.replace(served, server_reason=counted)
        queue_ms, compute_ms = (ns / counted.requests / 1e6 for ns in (counted.queue_ns, counted.compute_ns))
        remainder_ms = sum(took_ns) / counted.requests / 1e6 - queue_ms - compute_ms
        return msgspec.structs.replace(
            served,
            server_queue_ms=queue_ms,
            server_compute_ms=compute_ms,
            remainder_ms=remainder_ms if counted.requests == len(took_ns) and remainder_ms >= 0 else None,
            requests_of_others=max(counted.requests - len(took_ns) - len(self._timed.failed), 0),
        )

    def close(self) -> None:
        """Close the connections."""
        self._part_from_users()
        if self._open is not None:
            self._open[0].close()
        self._open = self._last = self._unread = None
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
        raise ConfigError(f"the server's file sets transport, which protocol {file.protocol} does not have: leave it out")
    if file.transport == "grpc":
        began_ns = time.monotonic_ns()
        grpc_link = served_grpc.GrpcConnection(file)
        return grpc_link, served_grpc.GrpcInference(grpc_link, file), time.monotonic_ns() - began_ns
    link = ServerConnection.to(file, {"oip": "/v2", "tf-serving": "/v1"}.get(file.protocol, ""))
    return link, _PROTOCOLS[file.protocol](link, file), 0


def _statistics(protocol: ServedProtocol) -> ServerStatistics | str:
    """Return the server's counts once they rest, or why there are none; those of a server that others ask never rest."""
    try:
        last, counts = None, protocol.statistics()
        for _ in range(_LOOKS):
            if isinstance(counts, str) or counts == last:
                break
            time.sleep(_LOOK_S)
            last, counts = counts, protocol.statistics()
    except TransientError as error:
        return f"the server's own statistics were not read: {one_line(error)[:120]}."
    return counts


def _counted(protocol: ServedProtocol, since: ServerStatistics | str, answered: int) -> ServerStatistics | str:
    """Return the server's counts once they hold all that it answered since."""
    counts, deadline = _statistics(protocol), time.monotonic() + _COUNTS_WITHIN_S
    while not isinstance(counts, str) and not isinstance(since, str) and counts.requests - since.requests < answered:
        if time.monotonic() > deadline:
            break
        counts = _statistics(protocol)
    return counts


def _between(before: ServerStatistics | str, after: ServerStatistics | str, answered: int) -> ServerStatistics | str:
    """Return what the server counted between two looks at its counts, or why that is not known."""
    if isinstance(before, str) or isinstance(after, str):
        return before if isinstance(before, str) else str(after)
    counted = after - before
    if min(counted.requests, counted.queue_ns, counted.compute_ns, counted.cache_hits) < 0:
        return "the server's counters were reset in the timed part."
    if counted.requests < max(1.0, _FEWEST_COUNTED_RATIO * answered):
        return f"the server counted {counted.requests} of the {answered} requests of the timed part."
    return counted


def _stage(took_ns: Sequence[int]) -> Stage | None:
    if not took_ns:
        return None
    took_ms = np.asarray(took_ns) / 1e6
    p50_ms, p90_ms = np.percentile(took_ms, (50, 90))
    return Stage(count=len(took_ns), mean_ms=float(took_ms.mean()), p50_ms=float(p50_ms), p90_ms=float(p90_ms))
