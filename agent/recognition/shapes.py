"""The family of a vision model without a card: from the shapes of its outputs, what it says of itself, and its file name."""

from collections.abc import Sequence

from edgemeter.agent.recognition import file_name, one_tensor, several_tensors
from edgemeter.agent.recognition.family import Family, Shape, UnknownFamilyError, in_words
from edgemeter.agent.recognition.self_description import SelfDescription
from edgemeter.agent.runtimes import TensorInfo

_IMAGENET = (1000, 1001)


def find(outputs: Sequence[TensorInfo], size: tuple[int, int] | None, name: str, said: SelfDescription) -> Family:
    """Return the family of a model with these outputs.

    Args:
        outputs: as the runtime found them.
        size: height and width of the input, None where the file leaves them open.
        name: of the file.
        said: what the file says of itself.

    Raises:
        UnknownFamilyError: none fits.
    """
    if not outputs:
        return file_name.alone(name, said)
    shapes = [info.shape for info in outputs]
    if len(outputs) == 1 and _is_scores(shapes[0]):
        return _classifier(shapes[0], name, said)
    found = several_tensors.find(outputs, size, name, said)
    # Old exports of YOLOv5 give its raw maps after the decoded tensor.
    if found is None and len(shapes[0]) == 3 and all(len(shape) == 5 for shape in shapes[1:]):
        found = one_tensor.find(shapes[0], size, name, said)
    if found is None:
        where = "of open size" if size is None else f"of {size[0]} x {size[1]}"
        message = f"its outputs {in_words(shapes)} on an input {where} are those of no known family"
        raise UnknownFamilyError(message)
    return found


def _is_scores(shape: Shape) -> bool:
    """Return whether the shape is one row of scores: [1, n], or [1, 1, 1, n] and [1, n, 1, 1]."""
    return len(shape) >= 2 and shape[0] in (1, None) and None not in shape[1:] and sum(size != 1 for size in shape[1:]) == 1


def _classifier(shape: Shape, name: str, said: SelfDescription) -> Family:
    classes = max(size or 0 for size in shape)
    if classes in _IMAGENET or classes == len(said.labels):
        return Family("classifier", "classification", classes, f"its {classes} scores")
    if said.labels and said.task in (None, "classify"):
        message = f"it gives {classes} scores and names {len(said.labels)} classes"
        raise UnknownFamilyError(message)
    if file_name.is_classifier(name) or said.task == "classify":
        doubt = f"its {classes} values are scores of classes that it does not name; `task`, output.classes and output.labels say"
        return Family("classifier", "classification", classes, f"its {classes} scores and its file name", (doubt,))
    message = f"its one output has {classes} values, which may be scores or features"
    raise UnknownFamilyError(message)
