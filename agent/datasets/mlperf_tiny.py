"""The reader of MLPerf Tiny's list of an evaluation set."""

from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth, required
from edgemeter.agent.datasets.class_lists import ClassIndex, add_target, text_lines

_LABELS_FORM = "each line is `file,classes,label` or `file,classes,label,window,stride`, as in MLPerf Tiny"


class MlperfTiny:
    """MLPerf Tiny's list of its evaluation set, `y_labels.csv`: features or pixels (.bin), each with its class."""

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
        return GroundTruth(ClassIndex(classes), path)
