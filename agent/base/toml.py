"""TOML files: read as typed documents, and written atomically."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.foreign_text import decode_toml

_Document = TypeVar("_Document")
_REMEDY = "give the path of a TOML file"


def read_toml(path: Path, kind: type[_Document], title: str, remedy: str = _REMEDY) -> _Document:
    """Return the TOML file at `path` as that type.

    `title` names the file in errors, `remedy` is for an unreadable one.

    Raises:
        ConfigError: it cannot be read, or has a wrong or unknown key: the first mistake, and the
            number of further ones.
    """
    text = _read(path, title, remedy)
    try:
        return decode_toml(text, kind)
    except msgspec.MsgspecError as error:
        # Only a wrong file needs it.
        from edgemeter.agent.base.toml_mistakes import mistakes  # noqa: PLC0415

        # If it is not TOML, a line is wrong; else a key is.
        all_mistakes = mistakes(parse_toml(path, title), kind)
        # The command accepts files of these names only.
        remedy = ": `edgemeter config check FILE` lists them" if path.suffix == ".toml" else ""
        count_text = f" (and {len(all_mistakes) - 1} more{remedy})" if len(all_mistakes) > 1 else ""
        raise ConfigError(
            f"{title} {str(path)!r}: {all_mistakes[0] if all_mistakes else error}{count_text}"
        ) from error


def parse_toml(path: Path, title: str) -> dict[str, Any]:
    """Return the content of the TOML file at `path`; `title` names the file in errors.

    Raises:
        ConfigError: it cannot be read, or is invalid: the line is named.
    """
    try:
        return decode_toml(_read(path, title, _REMEDY), dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{title} {str(path)!r} is not valid TOML ({error}): correct that line"
        ) from error


def _read(path: Path, title: str, remedy: str) -> bytes:
    with os_error_as(ConfigError, f"cannot read the {title} {str(path)!r}", remedy):
        return path.read_bytes()


def toml_document(content: Mapping[str, Any]) -> str:
    """Return `content` as TOML, without None and empty tables and lists."""
    import tomli_w  # noqa: PLC0415 - the daemon reads these files and writes none

    return tomli_w.dumps(_pruned(content))


def write_toml(path: Path, text: str) -> None:
    """Write `text` to `path` atomically.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    with durable_file.replacing(path, 0o644) as file:
        file.write(text.encode())


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _pruned(inner) for key, inner in value.items() if inner not in (None, {}, [], ())
        }
    return [_pruned(inner) for inner in value] if isinstance(value, list | tuple) else value
