"""Data sets: items and their ground truth. The protocol of a reader of ground truth, and the table of names; one file per format.

Others register theirs through the entry point group `edgemeter.readers`. A reader is not named by the user: it recognises its format.
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

# Asked in this order; then those of other packages, in the order of their names.
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
    """Ground truth of any type: a target per item, by the item's name (a file's, relative to the folder). Its task knows the type."""

    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The ground truth that a reader read.

    `identity` stands for the ground truth in the hash of the data set: the file whose bytes are all of it, else bytes that are.
    `warnings` count what is odd about it. `named_by` is what decides which files belong to the data set: the annotations, which may name
    some of a folder, or the folder. `items` are those that lie inside a file; without them an item is the file of its name. `beside` are
    files in the folder that hold the ground truth of its items, and travel with them.
    """

    content: CocoDocument | ClassIndex | Targets
    identity: Path | bytes
    warnings: tuple[str, ...] = ()
    named_by: Literal["annotations", "folder"] = "annotations"
    items: tuple[Item, ...] = ()
    beside: tuple[Path, ...] = ()

    def named(self) -> list[str]:
        """Return the names of the items, sorted."""
        if self.items:
            return sorted(item.name for item in self.items)
        if isinstance(self.content, CocoDocument):
            return sorted(image.file_name for image in self.content.images)
        return sorted(self.content.classes if isinstance(self.content, ClassIndex) else self.content.values)


class Reader(Protocol):
    """Reads one format of ground truth; constructed without arguments, keeps nothing."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether these are of its format; looks at names and, where they do not tell, at the first bytes.

        Without annotations it is asked about a folder that holds no photographs itself, or about a file in the place of the folder, which
        holds items and ground truth alike. It raises nothing: what cannot be read is not its.
        """

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the ground truth of what it recognised.

        Raises:
            ConfigError: it cannot be read or is garbled; the message names the file, the place and the remedy.
        """


def required(annotations: Path | None) -> Path:
    """Return the annotations that a format needs; raises ConfigError if there are none."""
    if annotations is None:
        raise ConfigError("this format of ground truth needs a file of annotations: give it as annotations")
    return annotations


def names() -> list[str]:
    """Return the names of all known readers, ours first."""
    ours_and_others = plugin_names(READERS, ENTRY_POINTS)
    return [*READERS, *sorted(set(ours_and_others) - set(READERS))]


def create(name: str) -> Reader:
    """Return the reader of that name.

    Raises:
        ConfigError: no reader has that name.
        UnavailableError: it is another package's, and cannot be imported.
    """
    reader: Reader = find_plugin("data-set reader", READERS, name, ENTRY_POINTS)()
    return reader
