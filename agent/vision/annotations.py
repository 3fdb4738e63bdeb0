"""Ground truth as files hold it: COCO's annotation document (detection), or an index from file name to class (classification)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from edgemeter.agent.errors import ConfigError

Side = Annotated[float, msgspec.Meta(ge=0)]
# Ids travel to the metric in a column of float64, which is exact up to here.
Id = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
ClassIndex = Annotated[int, msgspec.Meta(ge=0)]


class Image(msgspec.Struct, frozen=True):
    """One photograph as COCO names it; `width` and `height` in pixels, where given."""

    id: Id
    file_name: Annotated[str, msgspec.Meta(min_length=1)]
    width: int | None = None
    height: int | None = None


class Category(msgspec.Struct, frozen=True):
    """One class of objects."""

    id: Id
    name: str


class Annotation(msgspec.Struct, frozen=True):
    """One object: `bbox` is x, y, width, height in pixels; `area` is that of its outline, of its box where none is given."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, Side, Side]
    area: Side | None = None
    iscrowd: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0


class Document(msgspec.Struct, frozen=True):
    """COCO's annotation document; what is not needed for boxes is not read."""

    images: Sequence[Image]
    annotations: Sequence[Annotation]
    categories: Sequence[Category]


def read(path: Path) -> Document | dict[str, int]:
    """Return the document in `path`, or its index from file name to class.

    Raises:
        ConfigError: it cannot be read, is neither of the two, or contradicts itself; says where and what to do.
    """
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        if "images" not in found and "annotations" not in found:
            return msgspec.json.decode(content, type=dict[str, ClassIndex])
        document = msgspec.json.decode(content, type=Document)
    except OSError as error:
        message = f"cannot read the annotations {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = (
            f"the annotations {str(path)!r} are neither COCO's (images, annotations, categories; bbox is x, y, width, height) "
            f'nor an index {{"file": class}}: {error}'
        )
        raise ConfigError(message) from error
    if problem := _contradiction(document):
        message = f"the annotations {str(path)!r} contradict themselves: {problem}; correct them"
        raise ConfigError(message)
    return document


def _contradiction(document: Document) -> str | None:
    """Return what is wrong with the document as a whole, None when nothing is."""
    images = {image.id for image in document.images}
    categories = {category.id for category in document.categories}
    names = [image.file_name for image in document.images]
    outside = next((name for name in names if Path(name).is_absolute() or ".." in Path(name).parts), None)
    if outside is not None:
        return f"the file name {outside!r} leads out of the image folder"
    for what, values in (
        ("image id", [image.id for image in document.images]),
        ("file name", names),
        ("category id", [category.id for category in document.categories]),
        ("annotation id", [annotation.id for annotation in document.annotations]),
    ):
        if (twice := _twice(values)) is not None:
            return f"{what} {twice!r} stands there twice"
    for annotation in document.annotations:
        if annotation.image_id not in images:
            return f"annotation {annotation.id} is of image {annotation.image_id}, which is not among the images"
        if annotation.category_id not in categories:
            return f"annotation {annotation.id} is of category {annotation.category_id}, which is not among the categories"
    return None


def _twice(values: Iterable[int | str]) -> int | str | None:
    return next((value for value, count in Counter(values).items() if count > 1), None)
