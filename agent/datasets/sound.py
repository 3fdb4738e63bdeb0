"""Readers of ground truth of sound: MLPerf Tiny's y_labels.csv, transcripts as a table, LibriSpeech's folders."""

import csv
import re
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth, Targets, required
from edgemeter.agent.datasets.class_lists import ClassIndex, add_target, text_lines
from edgemeter.agent.datasets.items import SOUND

_LABELS_FORM = "each line is `file,classes,label` or `file,classes,label,window,stride`, as in MLPerf Tiny"
# ToyCar's files name the machine that was recorded.
_MACHINE = re.compile(r"_(id_\d+)_")
# What tables of transcripts call their columns; Common Voice's are `path` and `sentence`.
_FILE, _TEXT, _GROUP = ("file", "path"), ("text", "sentence", "transcript"), ("group", "speaker", "client_id")


class MlperfTiny:
    """MLPerf Tiny's list of its evaluation set, `y_labels.csv`: features, recordings or pixels (.bin), each with its class.

    Anomaly detection's names state the machine (`id_01`), which becomes the group.
    """

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are called as MLPerf Tiny calls them."""
        return annotations is not None and annotations.name.startswith("y_labels") and annotations.suffix == ".csv"

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the class of each file that the list names."""
        path = required(annotations)
        classes: dict[str, int] = {}
        for number, line in enumerate(text_lines(path), 1):
            cells = [cell.strip() for cell in line.split(",")]
            if not line.strip():
                continue
            if (
                len(cells) not in (3, 5)
                or not all(cell.isascii() and cell.isdigit() for cell in cells[1:])
                or int(cells[2]) >= int(cells[1])
            ):
                raise ConfigError(f"the list {str(path)!r}: line {number} is {line[:80]!r}: {_LABELS_FORM}")
            add_target(classes, cells[0], int(cells[2]), f"{str(path)!r}: line {number}")
        if not classes:
            raise ConfigError(f"the list {str(path)!r} names no files: {_LABELS_FORM}")
        matches = {name: _MACHINE.search(name) for name in classes}
        machines = {name: machine[1] for name, machine in matches.items() if machine}
        index = ClassIndex(classes, machines if len(machines) == len(classes) else {})
        return GroundTruth(index, path)


class Transcripts:
    """A table (.csv, .tsv) with a heading that names a column of files, one of texts and, where there are groups, one of these."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are a table with such a heading."""
        if annotations is None or annotations.suffix.lower() not in (".csv", ".tsv"):
            return False
        try:
            with annotations.open(encoding="utf-8-sig") as file:
                heading = file.readline(4096)
        except (OSError, UnicodeDecodeError):
            return False
        cells = _cells(heading, annotations)
        return _column(cells, _FILE) is not None and _column(cells, _TEXT) is not None

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the text of each file that the table names."""
        path = required(annotations)
        rows = [(number, _cells(line, path)) for number, line in enumerate(text_lines(path), 1) if line.strip()]
        heading = rows[0][1] if rows else []
        file, text, group = (_column(heading, names) for names in (_FILE, _TEXT, _GROUP))
        if file is None or text is None:
            raise ConfigError(f"the table {str(path)!r} has no heading with a column `file` and a column `text`: add one")
        texts: dict[str, str] = {}
        groups: dict[str, str] = {}
        for number, cells in rows[1:]:
            if len(cells) <= max(file, text):
                raise ConfigError(f"the table {str(path)!r}: line {number} has {len(cells)} cells: give a file and its text")
            add_target(texts, cells[file], cells[text], f"{str(path)!r}: line {number}")
            if group is not None and len(cells) > group and cells[group]:
                groups[cells[file]] = cells[group]
        if not texts:
            raise ConfigError(f"the table {str(path)!r} names no recordings below its heading: add a line for each")
        return GroundTruth(Targets(texts, groups), path)


class LibriSpeech:
    """LibriSpeech's folders, SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt beside the recordings; the speaker becomes the group."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether there are no annotations and the folder, or one two levels below, holds transcripts."""
        return annotations is None and bool(_transcripts(folder))

    def read(self, folder: Path, _annotations: Path | None) -> GroundTruth:
        """Return the text of each recording that the transcripts name."""
        texts: dict[str, str] = {}
        groups: dict[str, str] = {}
        for path in _transcripts(folder):
            for number, line in enumerate(text_lines(path), 1):
                if not line.strip():
                    continue
                name, _, text = line.partition(" ")
                recordings = [path.with_name(name + suffix) for suffix in SOUND if path.with_name(name + suffix).is_file()]
                if not text.strip() or not recordings:
                    raise ConfigError(
                        f"the transcripts {str(path)!r}: line {number} is {line[:60]!r}, which names no recording beside it with a text: "
                        "a line is `NAME TEXT`, the recording NAME.flac"
                    )
                recording = recordings[0].relative_to(folder).as_posix()
                add_target(texts, recording, text.strip(), f"{str(path)!r}: line {number}")
                groups[recording] = name.partition("-")[0]
        if not texts:
            raise ConfigError(f"no transcripts (*.trans.txt) with text below {str(folder)!r}: give LibriSpeech's folder of a set")
        identity, transcripts = msgspec.json.encode(texts, order="sorted"), tuple(_transcripts(folder))
        return GroundTruth(Targets(texts, groups), identity, beside=transcripts)


def _transcripts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for pattern in ("*.trans.txt", "*/*.trans.txt", "*/*/*.trans.txt") for path in folder.glob(pattern))


def _cells(line: str, path: Path) -> list[str]:
    if path.suffix.lower() == ".tsv":
        return [cell.strip() for cell in line.rstrip("\r\n").split("\t")]
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _column(heading: list[str], names: tuple[str, ...]) -> int | None:
    plain = [cell.lower() for cell in heading]
    return next((plain.index(name) for name in names if name in plain), None)
