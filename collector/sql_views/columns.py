"""The columns that SQL sees of a run: every field of the case's identity and every figure, made from their tables.

A figure has the name that it has in InfluxDB and exports. What many runs share is kept once, in a context; a run has a row of numbers.
"""

import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from edgemeter.agent.contract.case_identity import FIELDS, CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import FIGURES, Figure, reader, with_part
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.influx.point_schema import case_tags, energy_source
from edgemeter.collector.influx.status_points import DEVICE_FIELDS
from edgemeter.collector.postgresql.writer import subject_number

SqlKind = Literal["bigint", "boolean", "double precision", "text", "timestamptz"]
# Raised where a column gets another meaning under its name: what was filled in before is filled in again.
MEANINGS_VERSION = 1
_KIND_OF_TYPE: dict[Any, SqlKind] = {str: "text", int: "bigint", float: "double precision"}
_KIND_OF_FIELD: dict[str, SqlKind] = {"float": "double precision", "integer": "bigint", "boolean": "boolean", "text": "text"}
CONTEXTS_REMEMBERED = 65_536
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class SqlColumn(NamedTuple):
    """A column, its type and meaning; `expression` is what it is in a view where that is more than its name."""

    name: str
    kind: SqlKind
    meaning: str
    read: Callable[[Any], Any] | None = None
    expression: str = ""


def _of_record(name: str, path: str, kind: SqlKind = "text") -> SqlColumn:
    return SqlColumn(name, kind, f"`{path}` of the record", reader(path))


def _of_identity() -> Iterable[SqlColumn]:
    hints = typing.get_type_hints(CaseKey)
    for field in FIELDS:
        types = [kind for kind in (typing.get_args(hints[field.name]) or (hints[field.name],)) if kind is not type(None)]
        yield SqlColumn(field.name, _KIND_OF_TYPE[types[0]], ", ".join(f"`{path}`" for path in field.paths))


def _of_figure(entry: Figure) -> Iterable[SqlColumn]:
    unit = f", {entry.unit}" if entry.unit else ""
    yield SqlColumn(entry.name, "boolean" if entry.is_truth else "double precision", f"{entry.title}{unit}", entry.value)
    for path, words in ((entry.low, "lower 95% bound"), (entry.high, "upper 95% bound"), (entry.u, "expanded uncertainty")):
        if path:
            yield SqlColumn(path.replace(".", "_"), "double precision", f"{words} of {entry.name}", reader(path))


# In a context, known by the identity and the inputs, then what is read of each run.
IDENTITY = tuple(_of_identity())
CASE = (
    SqlColumn("case_hash", "text", "hash of the case: of all that distinguishes it, but for device and fleet"),
    SqlColumn("variant", "text", "what else distinguishes the case, in words"),
)
OF_CONTEXT = (
    SqlColumn("energy_source", "text", "scope, sensor and provenance of the energy", energy_source),
    _of_record("energy_scope", "energy.scope"),
    _of_record("energy_sensor", "energy.sensor"),
    SqlColumn("energy_provenance", "text", "measured, replayed, estimated, modelled or published", energy_provenance),
    SqlColumn(
        "provenances", "text", "provenance of each group, JSON", lambda run: msgspec.json.encode(run.provenance, order="sorted").decode()
    ),
    _of_record("accuracy_metric", "accuracy.metric"),
    _of_record("accuracy_images", "accuracy.images", "bigint"),
    _of_record("case_name", "case"),
    _of_record("suite", "suite"),
    _of_record("dataset", "dataset.name"),
    _of_record("board", "environment.board"),
    _of_record("firmware", "environment.firmware"),
    _of_record("kernel", "environment.kernel"),
    _of_record("agent", "environment.agent"),
    _of_record("stamped_by", "stamped_by"),
)
TIME = SqlColumn(
    "time", "timestamptz", "when the run began; where its clock cannot be right, when it was received",
    lambda run: _EPOCH + timedelta(microseconds=run.started_at_ns // 1000),
)  # fmt: skip
NUMBERS = (
    _of_record("latency_count", "latency.count", "bigint"),
    _of_record("energy_idle_before_w", "energy.idle_before_w", "double precision"),
    _of_record("environment_swap_used_mb", "environment.swap_used_mb", "double precision"),
    *(column for entry in FIGURES for column in _of_figure(entry)),
)
CONTEXT_COLUMNS = tuple(column for column in (*IDENTITY, *CASE, *OF_CONTEXT) if column.name != "device")
RUN_COLUMNS = (TIME, *NUMBERS)
DEVICE_COLUMNS = tuple(SqlColumn(field.name, _KIND_OF_FIELD[field.kind], field.description) for field in DEVICE_FIELDS)

_IDS = (
    SqlColumn("device", "text", "the device", expression="runs.device"),
    SqlColumn("id", "text", "id of the run", expression="runs.id"),
    SqlColumn("session", "bigint", "session of the device's outbox", expression="runs.session"),
    SqlColumn("seq", "bigint", "number of the record in it", expression="runs.seq"),
    SqlColumn("verdict", "text", "valid, suspect or invalid", expression="runs.verdict"),
)
_UNCERTAIN = tuple(
    SqlColumn(
        with_part(entry.name, part), "double precision", f"{words} 95% bound of {entry.name}",
        expression=f"{entry.name} {sign} {entry.u.replace('.', '_')}",
    )
    for entry in FIGURES if entry.u for part, words, sign in (("_low", "lower", "-"), ("_high", "upper", "+"))
)  # fmt: skip


class SqlView(NamedTuple):
    """A view that people and Grafana read: its columns, and what it selects from."""

    meaning: str
    columns: Sequence[SqlColumn]
    source: str


VIEWS = {
    "run_figures": SqlView(
        "one row for each run that counts",
        (TIME, *_IDS, *CONTEXT_COLUMNS, *NUMBERS, *_UNCERTAIN),
        "sql_runs JOIN runs USING (row) JOIN sql_contexts USING (context)",
    ),
    "device_state": SqlView(
        "one row for each device: its presence and health as last reported",
        (
            SqlColumn("time", "timestamptz", "when the state was last received", expression="to_timestamp(sql_devices.changed_ns / 1e9)"),
            SqlColumn("fleet", "text", "the fleet"),
            SqlColumn("device", "text", "the device"),
            *(column._replace(expression=f"sql_devices.{column.name}") for column in DEVICE_COLUMNS),
        ),
        "sql_devices JOIN presence USING (fleet, device)",
    ),
    "changes": SqlView(
        "changes of the devices, confirmed steps and notes, as `collector changes --views` wrote them last",
        (
            SqlColumn("time", "timestamptz", "since when", expression="to_timestamp(at_ns / 1e9)"),
            SqlColumn("fleet", "text", "the fleet, or `all`"),
            SqlColumn("device", "text", "the device, or `all`"),
            SqlColumn("kind", "text", "`step`, `note`, or what changed: firmware, kernel, ..."),
            SqlColumn("text", "text", "the change in words"),
        ),
        "sql_changes",
    ),
    "sink_lag": SqlView(
        "one row for each InfluxDB that the ledger is drained to, and for these views",
        (
            SqlColumn("sink", "text", "the sink", expression="name"),
            SqlColumn("sink_row", "bigint", "row up to which it has every record", expression="position"),
            SqlColumn("ledger_row", "bigint", "row of the newest record", expression="(SELECT coalesce(max(row), 0) FROM runs)"),
            SqlColumn("lag_rows", "bigint", "records that wait", expression="(SELECT count(*) FROM runs WHERE row > position)"),
            SqlColumn(
                "lag_s", "double precision", "how long the oldest of them has been waiting",
                expression="coalesce((SELECT greatest(0, CAST(extract(epoch FROM now()) - received_ns / 1e9 AS double precision)) "
                "FROM chunks WHERE chunk = (SELECT chunk FROM runs WHERE row > position ORDER BY row LIMIT 1)), 0)",
            ),
        ),
        "sinks",
    ),
}  # fmt: skip


def layout() -> str:
    """Return a hash of the columns that are filled: another one is another layout, for which every row is filled in again."""
    columns = [(column.name, column.kind) for column in (*CONTEXT_COLUMNS, *RUN_COLUMNS)]
    return sha256(msgspec.json.encode((MEANINGS_VERSION, columns))).hexdigest()[:12]


def storable(value: Any) -> Any:
    """Return `value` as PostgreSQL can store it: a text without NUL."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


class Contexts:
    """Gives the context of a run a number, of its values, so that every collector gives it the same."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.unsaved: dict[int, tuple[Any, ...]] = {}

    def clear(self) -> None:
        """Forget what is stored: it may not be there any more."""
        self._numbers.clear()
        self.unsaved.clear()

    def number(self, run: RunRecord) -> int:
        """Return the number of the run's context; one that is new is among the `unsaved`, its values by `CONTEXT_COLUMNS`."""
        key = key_of(run)
        shared = msgspec.structs.replace(key, device="")
        name = (shared, run.inputs, *(column.read(run) for column in OF_CONTEXT if column.read))
        number = self._numbers.get(name)
        if number is None:
            if len(self._numbers) >= CONTEXTS_REMEMBERED:
                self._numbers.clear()
            case, _, variant = case_tags(run)
            identity = (getattr(key, column.name) for column in IDENTITY if column.name != "device")
            values = tuple(storable(value) for value in (*identity, case, variant, *name[2:]))
            number = self._numbers[name] = subject_number(values)
            self.unsaved[number] = values
        return number


def array_of(column: SqlColumn, values: Sequence[Any]) -> Any:
    """Return values of a column as one parameter: an array's text, made by one call for many numbers, or a list of texts."""
    if column.kind in ("text", "bigint"):
        values = [storable(value) for value in values]
    return values if column.kind == "text" else msgspec.json.encode(values).decode().translate(_BRACES)


_BRACES = {ord("["): "{", ord("]"): "}"}
