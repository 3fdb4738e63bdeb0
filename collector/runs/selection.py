"""Runs are selected from a store by one text: `PATH[?KEY=VALUE[&KEY=VALUE...]]`.

Those of a ledger are read one by one.

A path is a ledger, a document of `edgemeter run --format json`, a bundle, or a folder of these; by
default the ledger in $EDGEMETER_HOME. The kind of a file is detected by its first bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.ledger.ledger import default_path
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.runs.contents import LeftOut, left_out_of, unread_run
from edgemeter.collector.runs.store import LedgerStore, RunStore, ledger_at, open_store

ZIP_MAGIC = b"PK\x03\x04"
SELECTORS: Mapping[str, Callable[[RunRecord], str | None]] = {
    "id": lambda run: run.id,
    "device": lambda run: run.device,
    "fleet": lambda run: run.fleet,
    "role": lambda run: run.role,
    "board": lambda run: run.environment.board,
    "model": lambda run: run.model.name,
    "sha256": lambda run: run.model.sha256,
    "runtime": lambda run: run.runtime.name,
    "version": lambda run: run.runtime.version,
    "precision": lambda run: run.precision,
    "suite": lambda run: run.suite,
    "case": lambda run: run.case,
    "agent": lambda run: run.environment.agent,
    "firmware": lambda run: run.environment.firmware,
    "verdict": lambda run: run.verdict.state,
}
TIMES = ("since", "until")


@dataclass(slots=True)
class RunSelection:
    """A store and a filter for its runs; `unreadable` is filled while they are read."""

    where: str
    wanted: Sequence[tuple[str, str]] = ()
    unreadable: list[LeftOut] = field(default_factory=list)

    def runs(self, *, with_samples: bool = False) -> Iterator[RunRecord]:
        """Yield the selected runs, those of a ledger in order of receipt.

        Samples are read on request. It raises ConfigError for an invalid file.
        """
        self.unreadable.clear()
        for run in self._every(self.where, with_samples):
            if self._is_wanted(run):
                yield run

    def total(self) -> int | None:
        """Return the maximum number of runs, None if that is unknown before they are read."""
        if (ledger := ledger_at(self.where)) is None:
            return None
        with open_ledger(ledger, "read") as opened:
            return opened.count()

    def _every(self, where: str, with_samples: bool) -> Iterator[RunRecord]:  # noqa: FBT001
        if "://" in where:
            yield from self._of_store(open_store(where), with_samples)
            return
        path = Path(where).expanduser()
        if path.is_dir():
            files = sorted(
                path_in_folder
                for path_in_folder in path.iterdir()
                if path_in_folder.suffix in (".edgemeter", ".json", ".sqlite")
            )
            if not files:
                raise ConfigError(
                    f"the folder {where!r} contains no bundle (*.edgemeter), document (*.json) "
                    "or ledger (*.sqlite)"
                )
            for file in files:
                yield from self._every(str(file), with_samples)
        elif _is_bundle(path):
            record = read_bundle(path).record
            yield record if with_samples else msgspec.structs.replace(record, samples=())
        else:
            yield from self._of_store(open_store(where), with_samples)

    def _of_store(self, store: RunStore, with_samples: bool) -> Iterator[RunRecord]:  # noqa: FBT001
        if isinstance(store, LedgerStore):
            with open_ledger(store.place, "read") as ledger:
                for entry in ledger.records(
                    with_samples=with_samples,
                    skipped=lambda skipped: self.unreadable.append(unread_run(skipped)),
                ):
                    yield entry.record
                self.unreadable += left_out_of(ledger)
            return
        contents = store.contents(with_samples=with_samples)
        self.unreadable += contents.left_out
        yield from contents.runs

    def _is_wanted(self, run: RunRecord) -> bool:
        tests: Mapping[str, Callable[[str], bool]] = {
            "id": run.id.startswith,
            "model": run.model.is_called,
            "since": lambda value: run.started_at_ns >= int(value),
            "until": lambda value: run.started_at_ns < int(value),
        }
        return all(
            tests[name](value) if name in tests else SELECTORS[name](run) == value
            for name, value in self.wanted
        )


def parse_selection(text: str) -> RunSelection:
    """Return the selection in `text`; nothing is read yet.

    Raises ConfigError if a selector is unknown, or a time is invalid.
    """
    if "://" in text or Path(text).expanduser().exists():
        return RunSelection(text)
    where, mark, query = text.partition("?")
    if not mark and _is_device(text):
        return selections_of("", {"device": text})
    if not mark and "=" in text:
        raise ConfigError(f"no file {text!r}; to select runs of the ledger write '?{text}'")
    selectors = parse_qsl(query, keep_blank_values=True)
    if mark and not selectors:
        raise ConfigError(f"{text!r} selects nothing: write ?KEY=VALUE&KEY=VALUE with {_known()}")
    return selections_of(where, dict(selectors))


def selections_of(where: str, selectors: Mapping[str, str]) -> RunSelection:
    """Return the selection of the runs at `where` by keys of `SELECTORS` and `TIMES`.

    An empty `where` is the default ledger. It raises as `parse_selection` does.
    """
    unknown = [name for name in selectors if name not in SELECTORS and name not in TIMES]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is not a selector: choose from {_known()}")
    return RunSelection(
        where or str(default_path()),
        [(name, _instant(value) if name in TIMES else value) for name, value in selectors.items()],
    )


def _known() -> str:
    return ", ".join([*SELECTORS, *TIMES])


def _instant(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ConfigError(
            f"{value!r} is not a time: write YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS, in UTC"
        ) from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return str(int(aware.timestamp()) * 1_000_000_000)


def _is_device(text: str) -> bool:
    if not default_path().exists():
        return False
    with open_ledger(default_path(), "read") as ledger:
        return bool(ledger.query("SELECT 1 FROM runs WHERE device = ? LIMIT 1", text))


def _is_bundle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    except OSError:
        # `open_store` reports its faults.
        return False
