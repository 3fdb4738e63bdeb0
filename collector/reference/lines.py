"""JSON lists read element by element, each with its line: who is refused is told where."""

import json
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.errors import ConfigError

_SPACE = " \t\n\r"


def objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a JSON list with the line (from 1) on which each begins.

    Raises:
        ConfigError: the file cannot be read, is no list of objects, or ends too early; the message names the line.
    """
    text = _text(path)
    decoder = json.JSONDecoder()
    place = _skip(text, 0)
    if text[place : place + 1] != "[":
        raise _refusal(path, text, place, "a JSON list begins with [")
    place = _skip(text, place + 1)
    if text[place : place + 1] == "]":
        _refuse_more(path, text, place + 1)
        return
    while True:
        start = place
        try:
            found, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise _refusal(path, text, error.pos, f"{error.msg}: the file is cut off or no JSON") from error
        except RecursionError as error:
            raise _refusal(path, text, start, "nested too deep") from error
        if not isinstance(found, dict):
            raise _refusal(path, text, start, f"an object was expected, not {type(found).__name__}")
        yield _line(text, start), found
        place = _skip(text, place)
        after = text[place : place + 1]
        if after == "]":
            _refuse_more(path, text, place + 1)
            return
        if after != ",":
            raise _refusal(path, text, place, "the file is cut off: , or ] was expected")
        place = _skip(text, place + 1)


def _refuse_more(path: Path, text: str, place: int) -> None:
    place = _skip(text, place)
    if place < len(text):
        raise _refusal(path, text, place, "there is more behind the end of the list: give the file as it was published")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        message = f"cannot read {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except UnicodeDecodeError as error:
        message = f"{str(path)!r} is no text in UTF-8 (byte {error.start}): give the JSON file as it was published"
        raise ConfigError(message) from error


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _refusal(path: Path, text: str, place: int, why: str) -> ConfigError:
    return ConfigError(f"{str(path)!r}, line {_line(text, place)}: {why}")
