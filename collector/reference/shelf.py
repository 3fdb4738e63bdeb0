"""The shelf: where imported and published figures are kept, apart from the ledger. Nothing on it is a run.

A folder: `mlperf-ROUND.json` for each imported round, `published.toml` for what the user added; one published row ships as a sample.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.collector.reference import mlperf, published
from edgemeter.collector.reference.footnote import footnote
from edgemeter.collector.reference.mlperf import MlperfRow
from edgemeter.collector.reference.published import Date, PublishedRow

SAMPLE = Path(__file__).with_name("sample_published.toml")


class Import(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An imported file: the official round, where and when it was retrieved, the file's hash, and its rows."""

    round: str
    source: str
    retrieved: Date
    is_verified: bool
    file_sha256: str
    dropped: int
    rows: tuple[MlperfRow, ...]

    def footnote(self, row: MlperfRow) -> str:
        """Return the footnote that has to stand beside `row`."""
        return footnote(row, self.source, self.retrieved, is_verified=self.is_verified)


@dataclass(frozen=True, slots=True)
class Shelf:
    """The folder `path`; absent, it is empty but for the sample."""

    path: Path

    def imports(self) -> list[Import]:
        """Return the imported rounds.

        Raises:
            ConfigError: a file cannot be read.
        """
        return [_read_import(path) for path in sorted(self.path.glob("mlperf-*.json"))]

    def published(self) -> list[PublishedRow]:
        """Return the published rows, the sample first.

        Raises:
            ConfigError: a file cannot be read.
        """
        own = self.path / "published.toml"
        return [*published.read(SAMPLE), *(published.read(own) if own.exists() else [])]

    def keep_import(self, path: Path, parsed: mlperf.Parsed, source: str | None, retrieved: str, *, is_verified: bool) -> list[Import]:
        """Keep the rows of an official file, one import a round; a round that was there is replaced.

        Raises:
            ConfigError: no source is given and no row names its repository, or the date is none.
            UnavailableError: the folder cannot be written.
        """
        if not published.is_day(retrieved):
            message = f"--retrieved {retrieved!r} is no date: give YYYY-MM-DD"
            raise ConfigError(message)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        kept = []
        for name in sorted({row.round for row in parsed.rows}):
            rows = tuple(row for row in parsed.rows if row.round == name)
            found = Import(
                round=name,
                source=source or _repository(rows),
                retrieved=retrieved,
                is_verified=is_verified,
                file_sha256=digest,
                dropped=parsed.dropped,
                rows=rows,
            )
            self._write(f"mlperf-{name}.json", msgspec.json.encode(found))
            kept.append(found)
        return kept

    def add(self, rows: list[PublishedRow]) -> list[PublishedRow]:
        """Keep published rows; those that are there already are skipped. Return the new ones.

        Raises:
            ConfigError: one is there with another value: its source has changed, which makes another version or date.
            UnavailableError: the folder cannot be written.
        """
        present = {row.id: row for row in self.published()}
        new: list[PublishedRow] = []
        for row in rows:
            if why := published.fault(row):
                raise ConfigError(why)
            before = present.get(row.id)
            if before is not None and before.canonical != row.canonical:
                message = (
                    f"{row.key} already has {before.value:g} {before.unit} for {row.model} on {row.device}, not {row.value:g} {row.unit}: "
                    "a changed page is another version or date"
                )
                raise ConfigError(message)
            if before is None:
                present[row.id] = row
                new.append(row)
        own = self.path / "published.toml"
        before_text = own.read_text() if own.exists() else ""
        if new:
            self._write("published.toml", "\n".join([*([before_text] if before_text else []), *map(published.to_toml, new)]).encode())
        return new

    def _write(self, name: str, content: bytes) -> None:
        partial = self.path / f"{name}.part"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.replace(self.path / name)
        except OSError as error:
            message = f"cannot write {name!r} in {str(self.path)!r}: {error.strerror}"
            raise UnavailableError(message) from error


def _read_import(path: Path) -> Import:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Import)
    except OSError as error:
        message = f"cannot read {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"{str(path)!r} is damaged ({error}): import the official file again with `edgemeter reference import FILE`"
        raise ConfigError(message) from error


def _repository(rows: tuple[MlperfRow, ...]) -> str:
    """Return the repository that the rows' details lie in: owner and name behind the host."""
    for row in rows:
        parts = row.details.split("/")
        if row.details.startswith("https://") and len(parts) >= 5:
            return "/".join(parts[:5])
    message = "no row names where the results were published: say it with --source ADDRESS"
    raise ConfigError(message)
