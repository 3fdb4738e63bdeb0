"""What passes between the agent that stays and the process that carries an order out: a task in, notes out, one JSON text a line."""

import msgspec

from edgemeter.agent.jobs.contract import Order


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Carry out `order`, which stands in the journal at `place`; `contents` says by hash where each content of it stands."""

    order: Order
    place: int
    home: str
    device: str
    fleet: str
    config: str | None
    contents: dict[str, str]
    log: tuple[str, ...] = ()


class Doing(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What it does now, for people; `done_ratio` where that is known."""

    doing: str
    done_ratio: float | None = None


def decode_note(line: bytes) -> Doing | None:
    """Return what a line of the process says, None for one that is no note: the last words of something that died."""
    try:
        return msgspec.json.decode(line, type=Doing)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
