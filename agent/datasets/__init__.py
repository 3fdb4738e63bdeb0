"""Data sets: items and their ground truth.

The protocol of a reader of ground truth, and the table of names; one file per format.

Others register theirs through the entry point group `edgemeter.readers`. A reader is not named by
the user: it recognises its format.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.datasets.class_lists import ClassIndex
from edgemeter.agent.datasets.coco import CocoDocument
from edgemeter.agent.datasets.items import Item

# Asked in this order; then other packages' readers, by name.
READERS: Mapping[str, str] = {
    "mlperf-tiny": "edgemeter.agent.datasets.readers:MlperfTiny",
    "cifar-10": "edgemeter.agent.datasets.cifar:Cifar10",
    "visual-wake-words": "edgemeter.agent.datasets.readers:VisualWakeWords",
    "maps": "edgemeter.agent.datasets.readers:Maps",
    "yolo": "edgemeter.agent.datasets.yolo:Yolo",
    "class-folders": "edgemeter.agent.datasets.readers:ClassFolders",
    "class-list": "edgemeter.agent.datasets.readers:ClassList",
    "coco": "edgemeter.agent.datasets.readers:Coco",
}
ENTRY_POINTS = "edgemeter.readers"


@dataclass(frozen=True, slots=True)
class Targets:
    """Ground truth of a type that its task knows.

    It is a target per item, by the item's name (for a file, relative to the folder).
    """

    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The ground truth that a reader read.

    Attributes:
        identity: represents the ground truth in the data set's hash: a file, or bytes.
        warnings: oddities, counted.
        named_by: whether the annotations (which may name part of a folder) or the folder decide
            which files belong to the data set.
        items: the items stored inside a file; without them each item is the file of its name.
        beside: files in the folder that hold the ground truth of its items and travel with them.
    """

    content: CocoDocument | ClassIndex | Targets
    identity: Path | bytes
    warnings: tuple[str, ...] = ()
    named_by: Literal["annotations", "folder"] = "annotations"
    items: tuple[Item, ...] = ()
    beside: tuple[Path, ...] = ()

    def named(self) -> list[str]:
        """Return the items' names, sorted."""
        if self.items:
            return sorted(item.name for item in self.items)
        if isinstance(self.content, CocoDocument):
            return sorted(image.file_name for image in self.content.images)
        return sorted(
            self.content.classes if isinstance(self.content, ClassIndex) else self.content.values
        )


class Reader(Protocol):
    """Reads one format of ground truth; constructed without arguments, without state."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether these have its format.

        It is judged by names and, if they do not decide, by the first bytes. It never raises.

        Without annotations `folder` is one without photographs of its own, or a file with both
        items and ground truth.
        """

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the ground truth.

        Raises:
            ConfigError: it cannot be read or is garbled; the message has the file, the place and
                the remedy.
        """


def required(annotations: Path | None) -> Path:
    """Return the annotations; raises ConfigError if there are none."""
    if annotations is None:
        raise ConfigError(
            "this format of ground truth needs a file of annotations: give it as annotations"
        )
    return annotations


def names() -> list[str]:
    """Return the names of all readers, ours first."""
    return [*READERS, *sorted(set(plugin_names(READERS, ENTRY_POINTS)) - set(READERS))]


def create(name: str) -> Reader:
    """Return the reader of that name.

    Raises:
        ConfigError: there is none.
        UnavailableError: its package cannot be imported.
    """
    reader: Reader = find_plugin("data-set reader", READERS, name, ENTRY_POINTS)()
    return reader
