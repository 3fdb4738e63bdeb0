"""Imported and published figures, kept apart from the ledger, and the listing of all references in three blocks that never mix."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.figures import in_view
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published import table_file
from edgemeter.collector.published.judge import judge
from edgemeter.collector.published.judgement import RowJudgement
from edgemeter.collector.published.row import Date, PublishedRow, fault, is_day, not_sourced, too_few_items
from edgemeter.collector.published.shipped_rows import shipped_rows
from edgemeter.collector.reference import mlperf
from edgemeter.collector.reference.mlperf import APART, MlperfRow, footnote, published_footnote


class ReferenceImport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An imported file: the official round, where and when it was retrieved, the file's hash, and its rows."""

    round: str
    source: str
    retrieved: Date
    is_verified: bool
    file_sha256: str
    dropped: int
    rows: tuple[MlperfRow, ...]


@dataclass(frozen=True, slots=True)
class KeptImport:
    """An import that was kept, and the one of its round that it took the place of, if there was one."""

    now: ReferenceImport
    before: ReferenceImport | None

    def words(self) -> str | None:
        """Return what became of the earlier import; None if there was none."""
        if self.before is None:
            return None
        if self.before.file_sha256 == self.now.file_sha256:
            return f"{self.now.round} was already imported from this file (retrieved {self.before.retrieved}): the same results"
        return f"{self.now.round} of {self.before.retrieved} is replaced: {differences(self.before, self.now)}"


def differences(before: ReferenceImport, now: ReferenceImport) -> str:
    """Return how the results of two files of one round differ."""
    old, new = ({row.full_key: row for row in entry.rows} for entry in (before, now))
    changed = sum(not old[key].is_same(new[key]) for key in old.keys() & new.keys())
    return f"{count(len(new.keys() - old.keys()), 'new result')}, {changed} changed, {len(old.keys() - new.keys())} gone"


@dataclass(frozen=True, slots=True)
class ReferenceStore:
    """The folder `path`; absent, it holds the published rows that ship."""

    path: Path

    def version(self) -> str:
        """Return a text that changes with any file; raises ConfigError if the folder cannot be read."""
        with os_error_as(ConfigError, f"cannot read {str(self.path)!r}"):
            files = sorted(self.path.iterdir()) if self.path.exists() else []
            return " ".join(f"{file.name} {(state := file.stat()).st_mtime_ns} {state.st_size}" for file in files)

    def imports(self) -> list[ReferenceImport]:
        """Return the imported rounds; raises ConfigError if a file cannot be read."""
        return [_read_import(path) for path in sorted(self.path.glob("mlperf-*.json"))]

    def published(self) -> list[PublishedRow]:
        """Return the published rows, those that ship first, unless they are kept too; raises ConfigError if a file cannot be read."""
        path = self.path / "published.toml"
        rows = [*shipped_rows(), *(table_file.read(path) if path.exists() else [])]
        return list({row.id: row for row in rows}.values())

    def keep_import(
        self, path: Path, parsed: mlperf.ParsedRound, source: str | None, retrieved: str, *, is_verified: bool, replaces: bool = False
    ) -> list[KeptImport]:
        """Keep the rows of an official file, one import a round; another file of a round that is there is taken only if it `replaces` it.

        Raises:
            ConfigError: no source is given and no row names its repository, the date is none, or a round is there from another file;
                then nothing is kept.
            UnavailableError: the folder cannot be written.
        """
        if not is_day(retrieved):
            raise ConfigError(f"--retrieved {retrieved!r} is not a date: write YYYY-MM-DD")
        digest = durable_file.sha256_of(path)
        try:
            present = {entry.round: entry for entry in self.imports()}
        except ConfigError:
            # A damaged file is what an import with --replace puts right.
            if not replaces:
                raise
            present = {}
        imports = []
        for name in sorted({row.round for row in parsed.rows}):
            rows = tuple(row for row in parsed.rows if row.round == name)
            new = ReferenceImport(
                round=name,
                source=source or _repository(rows),
                retrieved=retrieved,
                is_verified=is_verified,
                file_sha256=digest,
                dropped=parsed.dropped,
                rows=rows,
            )
            before = present.get(name)
            if before is not None and before.file_sha256 != digest and not replaces:
                raise ConfigError(
                    f"{name} was already imported from another file (retrieved {before.retrieved}, {count(len(before.rows), 'result')}); "
                    f"this one has {differences(before, new)}: add --replace to take it instead"
                )
            imports.append(KeptImport(new, before))
        for entry in imports:
            durable_file.write(self.path / f"mlperf-{entry.now.round}.json", msgspec.json.encode(entry.now), 0o644)
        return imports

    def add(self, rows: list[PublishedRow]) -> list[PublishedRow]:
        """Keep published rows; those that are there already are skipped. Return the new ones.

        Raises:
            ConfigError: one is there with another value: its source has changed, which makes another version or date.
            UnavailableError: the folder cannot be written.
        """
        present = {row.id: row for row in self.published()}
        new: list[PublishedRow] = []
        for row in rows:
            if why := fault(row) or not_sourced(row) or too_few_items(row):
                raise ConfigError(why)
            before = present.get(row.id)
            if before is not None and before.canonical != row.canonical:
                raise ConfigError(
                    f"{row.key} already has {before.value:g} {before.unit} for {row.model} on {row.device}, not {row.value:g} {row.unit}: "
                    "a changed page is another version or date"
                )
            if before is None:
                present[row.id] = row
                new.append(row)
        if new:
            path = self.path / "published.toml"
            text = path.read_text() if path.exists() else ""
            durable_file.write(path, "\n".join([*([text] if text else []), *map(table_file.to_toml, new)]).encode(), 0o644)
        return new


def default_store() -> ReferenceStore:
    """Return the store of this machine: $EDGEMETER_REFERENCES, else `references` in $EDGEMETER_HOME."""
    return ReferenceStore(Path(os.environ.get("EDGEMETER_REFERENCES") or home() / "references"))


def _read_import(path: Path) -> ReferenceImport:
    try:
        return decode_json(path.read_bytes(), ReferenceImport)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{str(path)!r} is damaged ({error}): import the official file again: `edgemeter references import FILE --replace`"
        ) from error


def _repository(rows: tuple[MlperfRow, ...]) -> str:
    """Return the repository that the rows' details lie in: owner and name behind the host."""
    for row in rows:
        if address := re.match(r"https://[^/]*/[^/]*/[^/]*", row.details):
            return address[0]
    raise ConfigError("no row names where the results were published: name it with --address")


ReferenceRow = dict[str, object]


@dataclass(frozen=True, slots=True)
class ListingRequest:
    """A filter: parts of names, case-insensitive; None matches everything."""

    model: str | None = None
    device: str | None = None
    scenario: str | None = None
    suite: str | None = None
    key: str | None = None

    def holds(self, names: dict[str, str], keys: Sequence[str]) -> bool:
        """Return whether every filter is part of its name, and `key` begins one of `keys`."""
        filters = {name: text for name in ("model", "device", "scenario", "suite") if (text := getattr(self, name)) is not None}
        is_match = all(text.casefold() in names.get(name, "").casefold() for name, text in filters.items())
        return is_match and (self.key is None or any(name.casefold().startswith(self.key.casefold()) for name in keys))


@dataclass(frozen=True, slots=True)
class ReferenceListing:
    """The three blocks."""

    measured: list[ReferenceRow]
    imported: list[ReferenceRow]
    published: list[ReferenceRow]

    @property
    def document(self) -> ReferenceRow:
        """The listing as JSON has it: only what was measured ranks."""
        return {
            "measured": {"ranks": True, "rows": self.measured},
            "imported": {"ranks": False, "why": APART, "rows": self.imported},
            "published": {"ranks": False, "why": "published elsewhere: excluded from statistics", "rows": self.published},
        }


def listing_of(
    measured: Sequence[CaseSummary], imports: Sequence[ReferenceImport], published: Sequence[PublishedRow], request: ListingRequest
) -> ReferenceListing:
    """Return the matching rows of the three kinds."""
    return ReferenceListing(
        [row for case in measured if (row := _measured(case, request))],
        [row for imported in imports for result in imported.rows if (row := _imported(imported, result, request))],
        [row for judged in judge(published) if (row := _published(judged, request))],
    )


def _measured(case: CaseSummary, request: ListingRequest) -> ReferenceRow | None:
    key = case.key
    if not request.holds({"model": key.model, "device": key.device, "scenario": key.scenario}, [f"{key.device}/{key.model}"]):
        return None
    names = ("device", "model", "precision", "runtime", "backend", "scenario", "dataset_sha256")
    return {
        **{name: getattr(key, name) for name in names},
        "runs": len(case.runs),
        **{entry.column: median_of(case.spreads.get(entry.name)) for entry in in_view("references")},
        "energy_scope": case.energy.scope if case.energy else None,
        "energy_provenance": case.energy.provenance if case.energy else None,
        "verdict": case.verdict,
        "provenance": key.provenance,
    }


def _imported(imported: ReferenceImport, row: MlperfRow, request: ListingRequest) -> ReferenceRow | None:
    names = {"model": row.model, "device": f"{row.system} {row.accelerator}", "scenario": row.scenario, "suite": row.suite}
    if not request.holds(names, [row.key, row.id]):
        return None
    fields: ReferenceRow = {"key": row.key, **msgspec.to_builtins(row)}
    return {
        **fields,
        "provenance": "imported",
        "retrieved": imported.retrieved,
        "source": imported.source,
        "footnote": footnote(row, imported.source, imported.retrieved, is_verified=imported.is_verified),
    }


def _published(judged: RowJudgement, request: ListingRequest) -> ReferenceRow | None:
    row = judged.row
    if not request.holds({"model": row.model, "device": row.device}, [row.id, row.key]) or request.suite or request.scenario:
        return None
    value, unit = row.canonical
    fields: ReferenceRow = {
        "id": row.id,
        "key": row.key,
        "verdict": judged.state,
        "verdict_reason": judged.sentence,
        **msgspec.to_builtins(row),
    }
    cited: ReferenceRow = {"footnote": published_footnote(row)} if row.is_mlperf else {}
    return {**fields, "canonical_value": value, "canonical_unit": unit, "provenance": "published", **cited}
