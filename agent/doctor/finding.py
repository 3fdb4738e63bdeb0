"""A finding of `edgemeter doctor`: what is here, or is wrong, and what to do about it."""

from typing import Literal

import msgspec

Area = Literal["machine", "software", "power", "delivery"]
# bad: nothing can be measured or delivered so; warn: figures suffer; absent: not here, and not needed by everyone.
State = Literal["ok", "warn", "bad", "absent"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at; `remedy` is what to do, null where nothing has to be done."""

    area: Area
    name: str
    state: State
    what: str
    remedy: str | None = None
