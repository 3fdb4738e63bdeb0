"""A suite as the TOML that travels to devices: one `[[case]]` after the other, every key said."""

import json
from collections.abc import Sequence

import msgspec

from edgemeter.agent.engine.suites import Settings


def write(name: str, cases: Sequence[Settings]) -> bytes:
    """Return the document."""
    lines = [f"name = {_value(name)}"]
    for case in cases:
        lines += ["", "[[case]]"]
        lines += [f"{key} = {_value(value)}" for key, value in msgspec.structs.asdict(case).items() if value is not None]
    return "\n".join([*lines, ""]).encode()


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for one: TOML wants DEL escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
