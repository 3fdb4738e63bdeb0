"""The part of the record on a model behind a server: what travelled, and the queries that failed."""

from edgemeter.agent.base.types import Count
from edgemeter.agent.contract.record_conditions import RecordPart
from edgemeter.agent.contract.record_figures import Goodput, Stage


class Served(RecordPart, frozen=True, kw_only=True):
    """A model that a server ran. `latency` is from the ready request to the last byte of the answer: an arrival's with its connecting."""

    protocol: str = "unknown"  # Protocol and form of the tensors, e.g. `oip,binary`.
    server: str = "unknown"  # Name that the server gives itself.
    server_version: str = "unknown"  # Version of the server.
    model: str = ""  # The model by the server's name, e.g. `yolo`.
    model_version: str | None = None  # Version of the model that answered; null where the server states none.
    is_here: bool | None = None  # Whether the connection ends at this machine; null if unknown.
    encode: Stage | None = None  # Making a request of the inputs, before the query; no part of the latency.
    decode: Stage | None = None  # Making outputs of an answer, after the query; no part of the latency.
    connect: Stage | None = None  # Opening a connection within the latency of timed queries; null where none did.
    request_bytes: Count | None = None  # Size of a request without its HTTP headers, the largest.
    response_bytes: Count | None = None  # Size of an answer without its HTTP headers, the largest.
    network_round_trip_ms: float | None = None  # Round trip of a small request on the same connection in ms: a part of the latency.
    failed_queries: Count = 0  # Queries that the server did not answer; they are in no statistic.
    failures: dict[str, Count] = {}  # Failed queries by their kind, e.g. `http 429`.
    goodput: Goodput | None = None  # Requests that met the limits; null where no limits were set.

    @property
    def unanswered(self) -> int:
        """The queries without an answer."""
        return self.failed_queries
