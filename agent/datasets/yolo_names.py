"""The names of YOLO's classes: `classes.txt`, one a line, or `names` of a data.yaml in its usual forms (no YAML reader is needed)."""

import re
from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.datasets.class_index import text_lines
from edgemeter.agent.errors import ConfigError

FORMS = "write `names: [a, b]`, or one `- a` or `0: a` a line below `names:`, or give classes.txt with one name a line"
_ITEM = re.compile(r"\s*-\s+(?P<name>.+)")
_NUMBERED = re.compile(r"\s*[\"']?(?P<place>\d+)[\"']?\s*:\s*(?P<name>.+)")
# One element of an inline list: in quotes, or up to the next comma.
_ELEMENT = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,]+?)\s*(?:,|$)""")


def read(path: Path) -> tuple[str, ...]:
    """Return the names of the classes in order.

    Raises:
        ConfigError: the file cannot be read, has no `names` in a form that is understood, or leaves a number out.
    """
    lines = text_lines(path)
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    names = _of_yaml(lines, path) if is_yaml else [line.strip() for line in lines if line.strip()]
    if not names or not all(names):
        message = f"{str(path)!r} names no classes: {FORMS}"
        raise ConfigError(message)
    said = next((int(found[1]) for line in lines if (found := re.match(r"nc\s*:\s*(\d+)", line))), len(names))
    if said != len(names):
        message = f"{str(path)!r} says nc: {said} and names {len(names)} classes: correct one of them"
        raise ConfigError(message)
    return tuple(names)


def _of_yaml(lines: Sequence[str], path: Path) -> list[str]:
    start = next((place for place, line in enumerate(lines) if re.match(r"names\s*:", line)), None)
    if start is None:
        return []
    same_line = _uncommented(lines[start].split(":", 1)[1]).strip()
    if same_line:
        return _inline(same_line, lines[start + 1 :], path)
    below = []
    for line in map(_uncommented, lines[start + 1 :]):
        if line and not line[0].isspace() and not line.startswith("-"):
            break
        if line:
            below.append(line)
    if below and all(_ITEM.fullmatch(line) for line in below):
        return [_unquoted(found["name"]) for line in below if (found := _ITEM.fullmatch(line))]
    return _numbered([_NUMBERED.fullmatch(line) for line in below], path)


def _inline(text: str, below: Sequence[str], path: Path) -> list[str]:
    """Return the elements of a list or mapping in brackets, which may go on over several lines."""
    closing = {"[": "]", "{": "}"}.get(text[0])
    for line in below:
        if closing is None or text.endswith(closing):
            break
        text = f"{text} {_uncommented(line).strip()}"
    if closing is None or not text.endswith(closing):
        message = f"{str(path)!r} has names in a form that is not read: {FORMS}"
        raise ConfigError(message)
    elements = [element.strip() for element in _ELEMENT.findall(text[1:-1]) if element.strip()]
    if closing == "]":
        return [_unquoted(element) for element in elements]
    return _numbered([_NUMBERED.fullmatch(element) for element in elements], path)


def _numbered(found: Sequence[re.Match[str] | None], path: Path) -> list[str]:
    by_place = {int(one["place"]): _unquoted(one["name"]) for one in found if one}
    if len(by_place) != len(found) or sorted(by_place) != list(range(len(found))):
        message = f"{str(path)!r} does not name the classes 0 to {len(found) - 1} once each in a form that is read: {FORMS}"
        raise ConfigError(message)
    return [by_place[place] for place in range(len(found))]


def _uncommented(line: str) -> str:
    """Return the line without a comment, which begins at ` #` outside quotes."""
    found = re.match(r"""(?:[^"'#]|"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?<=\S)#|(?<=\w)')*""", line)
    return (found[0] if found else line).rstrip()


def _unquoted(name: str) -> str:
    name = name.strip()
    if len(name) >= 2 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1].replace("''", "'") if name[0] == "'" else re.sub(r"\\(.)", r"\1", name[1:-1])
    return name
