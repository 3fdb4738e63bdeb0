"""A data set as one uncompressed zip archive, with the same bytes for the same photographs.

images/FOLDER/...     the photographs, by their names in the ground truth
images/NAME           or one file with all items
annotations/NAME      the ground truth, if any: a file, or a folder of labels
"""

IMAGES, ANNOTATIONS = "images", "annotations"
MOST_FILES = 200_000
MOST_FOLDERS = 16
LONGEST_NAME_BYTES = 255


def is_plain(name: str) -> bool:
    """Return whether a name is a plain path in an archive.

    That is `images/FILE` or `annotations/FILE` or deeper.
    """
    first, *parts = name.split("/")
    if first not in (IMAGES, ANNOTATIONS) or not 1 <= len(parts) <= MOST_FOLDERS:
        return False
    return all(part not in ("", ".", "..") and _is_name(part) for part in parts)


def _is_name(part: str) -> bool:
    try:
        return len(part.encode()) <= LONGEST_NAME_BYTES and not any(
            ord(letter) < 32 or letter == "\x7f" for letter in part
        )
    except UnicodeEncodeError:
        return False
