"""One side of a review: runs from a ledger, documents, bundles or a folder of these, narrowed by a selector.

A side is `PATH[?KEY=VALUE[&KEY=VALUE...]]`; without a path it is the ledger below $EDGEMETER_HOME. What a file is, its first bytes say.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from edgemeter.agent.bundle import read as bundle
from edgemeter.agent.config import home
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.store import Contents, LeftOut, oldest_first, open_store

ZIP_MAGIC = b"PK\x03\x04"
SELECTORS: Mapping[str, Callable[[RunRecord], str | None]] = {
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
    "agent": lambda run: run.environment.agent,
    "firmware": lambda run: run.environment.firmware,
}
TIMES = ("since", "until")


def read(text: str) -> Contents:
    """Return the runs of a side.

    Raises:
        ConfigError: a file is absent or not ours, a selector is unknown, or no run is left.
    """
    where, selectors = _split(text)
    found = _contents(where)
    runs = [run for run in found.runs if _is_wanted(run, selectors)]
    if not runs:
        there = f"{len(found.runs)} runs are there, none is " + "&".join(f"{name}={value}" for name, value in selectors)
        message = f"{text!r} holds no run to compare" + (f": {there}" if selectors else "")
        raise ConfigError(message)
    return Contents(runs, found.left_out)


def _split(text: str) -> tuple[str, Sequence[tuple[str, str]]]:
    if "://" in text or Path(text).exists():
        return text, ()
    where, mark, query = text.partition("?")
    if not mark and "=" in text and not Path(text).exists():
        message = f"there is no file {text!r}; to choose runs of the ledger write '?{text}'"
        raise ConfigError(message)
    selectors = parse_qsl(query, keep_blank_values=True)
    unknown = [name for name, _ in selectors if name not in SELECTORS and name not in TIMES]
    if unknown or (mark and not selectors):
        named = repr(unknown[0]) if unknown else "it"
        message = f"{text!r}: {named} is no selector: write ?KEY=VALUE&KEY=VALUE with {', '.join([*SELECTORS, *TIMES])}"
        raise ConfigError(message)
    return where or str(home() / "ledger.sqlite"), [(name, _instant(value) if name in TIMES else value) for name, value in selectors]


def _instant(value: str) -> str:
    """Return a time in nanoseconds as text."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        message = f"{value!r} is no time: write YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS, in UTC"
        raise ConfigError(message) from error
    aware = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
    return str(int(aware.timestamp() * 1_000_000_000))


def _is_wanted(run: RunRecord, selectors: Sequence[tuple[str, str]]) -> bool:
    for name, value in selectors:
        if name == "since":
            fits = run.started_at_ns >= int(value)
        elif name == "until":
            fits = run.started_at_ns < int(value)
        else:
            fits = SELECTORS[name](run) == value
        if not fits:
            return False
    return True


def _contents(where: str) -> Contents:
    if "://" in where:
        return open_store(where).contents()
    path = Path(where).expanduser()
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix in (".edgemeter", ".json", ".sqlite"))
        if not files:
            message = f"the folder {where!r} holds no bundle (*.edgemeter), document (*.json) or ledger (*.sqlite)"
            raise ConfigError(message)
        return _joined([_contents(str(one)) for one in files])
    if _is_bundle(path):
        record = bundle.read(path).record
        return Contents([msgspec.structs.replace(record, samples=())])
    return open_store(where).contents()


def _is_bundle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    except OSError:
        # `open_store` says in words what is wrong with it.
        return False


def _joined(parts: Sequence[Contents]) -> Contents:
    left_out: list[LeftOut] = [entry for part in parts for entry in part.left_out]
    return Contents(oldest_first(run for part in parts for run in part.runs), left_out)
