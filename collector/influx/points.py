"""The points of runs as line protocol, of the measurement `run`.

There is a tag set for each case on a device, and a field for each figure.

The fields are the table of figures with bounds and uncertainties, and `FACTS`: the identity of the
run, and the meaning of its figures.
"""

import math
import zlib
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_MINUTE
from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import FIGURES, field_name, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Tensor
from edgemeter.agent.contract.run_figures import VALUE_COLUMNS, values_of
from edgemeter.agent.ledger.run_history import WithdrawnRun
from edgemeter.agent.ledger.run_row import likeness_of

MEASUREMENT = "run"
# Tag by its path in the record.
TAGS = {
    "backend": "runtime.backend",
    "board": "environment.board",
    "dataset": "dataset.name",
    "device": "device",
    "fleet": "fleet",
    "model": "model.name",
    "precision": "precision",
    "role": "role",
    "runtime": "runtime.name",
    "scenario": "scenario",
    "suite": "suite",
}
# The other tags, so that no two cases on a device, and no two kinds of energies, are ever one
# series.
CASE_TAGS = ("case_hash", "energy_source", "variant")
# The fields of a case in `variant`: those without a tag, except those that may change within a
# series of the trend.
VARIANT = (
    "backend", "threads", "batch", "input_values", "target_per_s", "concurrency", "power_mode",
    "provenance", "settings", "served_model", "operating_point", "deadline", "together",
)  # fmt: skip
# The facts of a record that are written besides tags and figures.
FACTS = (
    "id", "session", "seq", "started_at_ns", "stamped_by", "batch", "model.name", "model.task",
    "model.sha256", "runtime.package", "runtime.version", "runtime.threads", "dataset.sha256",
    "latency.count", "accuracy.metric", "energy.scope", "energy.sensor", "energy.idle_before_w",
    "environment.agent", "environment.firmware", "environment.kernel", "environment.power_mode",
    "verdict.state", "generation.prompt_tokens", "generation.output_tokens",
)  # fmt: skip
# The source of the energy, derived from the record.
ENERGY_PROVENANCE = "energy_provenance"

# The facts that runs of one subject do not share.
_OF_A_RUN = (
    "id", "session", "seq", "started_at_ns", "stamped_by", "latency.count", "energy.idle_before_w",
    "verdict.state", "generation.prompt_tokens", "generation.output_tokens",
)  # fmt: skip
_TRUTHS = {entry.name for entry in FIGURES if entry.is_truth}
_RUN_FACTS = [(field_name(path), reader(path)) for path in _OF_A_RUN]
_SHARED_FACTS = [(field_name(path), reader(path)) for path in FACTS if path not in _OF_A_RUN]
_SHARED_FACTS.append((ENERGY_PROVENANCE, energy_provenance))
_TAGS = [(name, reader(path)) for name, path in TAGS.items()]

# Characters; a tag may have 200.
_LONGEST_PART = 60
_KEPT_NS = 1_000_000
_CASES = 65_536
# The limit of remembered texts of subjects, some 2 kB each.
_MOST_SHARED = 2_000
# A tag can contain neither a line break nor a final backslash, and has no escape for either.
_PLAIN = dict.fromkeys((*range(32), 127), " ") | {ord("\\"): "/"}
_ESCAPED = {ord(character): f"\\{character}" for character in ",= "}


_shared_texts: dict[tuple[bytes, str | None], tuple[str, str]] = {}


def point_line(record: RunRecord) -> str:
    shared = likeness_of(record), record.suite
    tags, facts = _shared_texts.get(shared) or _remember(shared, record)
    # A number without a decimal point would make an integer column.
    fields = [
        f"{name}={bool(value)}".lower() if name in _TRUTHS else f"{name}={float(value)}"
        for name, value in zip(VALUE_COLUMNS, values_of(record), strict=True)
        if math.isfinite(value)
    ]
    fields += [fields_text((name, read(record)) for name, read in _RUN_FACTS), facts]
    return f"{MEASUREMENT}{tags} {','.join(fields)} {point_ns(record)}"


def _remember(shared: tuple[bytes, str | None], record: RunRecord) -> tuple[str, str]:
    """Return the tags and the facts of a record in text.

    They are kept for all records with the same likeness and suite.
    """
    texts = (
        "".join(
            f",{name}={tag_text(value)}" for name, value in sorted(tags_of(record).items()) if value
        ),
        fields_text((name, read(record)) for name, read in _SHARED_FACTS),
    )
    if len(_shared_texts) >= _MOST_SHARED:
        _shared_texts.clear()
    _shared_texts[shared] = texts
    return texts


def point_ns(record: RunRecord | WithdrawnRun) -> int:
    """Return the point's own time: the start in ms, plus a number from session and seq.

    For a record without a time it is the day, and a minute from its numbers: the same at every
    collector that received it that day.
    """
    session, seq = record.session or 0, record.seq or 0
    begun_ns = record.started_at_ns
    if record.stamped_by == "collector":
        begun_ns = (
            begun_ns - begun_ns % NS_PER_DAY + zlib.crc32(b"%d %d" % (session, seq)) % NS_PER_MINUTE
        )
    return (
        begun_ns - begun_ns % _KEPT_NS + (zlib.crc32(session.to_bytes(8, "big")) + seq) % _KEPT_NS
    )


def fields_text(fields: Iterable[tuple[str, object]]) -> str:
    return ",".join(f"{name}={_field_text(value)}" for name, value in fields if value is not None)


def _field_text(value: object) -> str:
    if isinstance(value, str):
        return '"{}"'.format(value.replace("\\", "\\\\").replace('"', '\\"'))
    if isinstance(value, float):
        return str(value)
    return str(value).lower() if isinstance(value, bool) else f"{value}i"


def tag_text(value: str) -> str:
    return value.translate(_PLAIN).translate(_ESCAPED)


def tags_of(record: RunRecord) -> dict[str, str | None]:
    return {name: value(record) for name, value in _TAGS} | dict(
        zip(CASE_TAGS, case_tags(record), strict=True)
    )


def case_tags(record: RunRecord) -> tuple[str, str | None, str]:
    """Return the values of `CASE_TAGS`.

    They are the hash of the case, the source of the energy, and the case in words.

    The words distinguish it from others of its model, runtime, precision, scenario and data: `cuda,
    4 threads, batch 8`. The source is scope, sensor and provenance: `board-input, ina219,
    measured`.
    """
    hashed, words = _case(key_of(record), record.inputs)
    # Latency and energy have tags for their provenance: a panel averages the fields of a series.
    unmeasured = [
        f"{name} {origin}"
        for name, origin in record.provenance.items()
        if origin == "published" and name not in {"latency", "energy"}
    ]
    source = None
    if record.energy is not None:
        source = (
            f"{record.energy.scope}, {record.energy.sensor}, "
            f"{energy_provenance(record) or 'not stated to be measured'}"
        )
    return hashed, source, ", ".join(filter(None, (words, *unmeasured)))


def case_hash(key: CaseKey) -> str:
    """Return a hash of the case without device and fleet, the same on every machine.

    It has 12 hexadecimal digits. An unknown or empty value is not included: a new field changes no
    hash of a run without it.
    """
    values = {
        field.name: value
        for field in FIELDS
        if field.name not in ("device", "fleet")
        and (value := getattr(key, field.name)) not in (None, "")
    }
    return sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:12]


@lru_cache(_CASES)
def _case(key: CaseKey, inputs: tuple[Tensor, ...]) -> tuple[str, str]:
    parts: list[str] = []
    usual = {"provenance": "measured", "settings": "", "operating_point": "", "together": ""}
    for name in VARIANT:
        if name == "input_values":
            parts += ["x".join(map(str, tensor.shape)) for tensor in inputs]
        elif getattr(key, name) not in (None, usual.get(name)):
            text = FIELD[name].text(key)
            # A long one is cut to leave room for the others, and ends with its hash.
            parts.append(
                text
                if len(text) <= _LONGEST_PART
                else f"{text[: _LONGEST_PART // 2]} {sha256(text.encode()).hexdigest()[:8]}"
            )
    return case_hash(key), ", ".join(parts)
