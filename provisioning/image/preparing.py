"""A boot partition prepared: the payload, the same for every system, and exactly one thin adapter for the format that the card has."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import UnavailableError
from edgemeter.provisioning.image import cloudinit, detect, firstrun, former, launch, preseed
from edgemeter.provisioning.image.boot_partition import BootPartition, Readable
from edgemeter.provisioning.image.bundle_files import BundleFiles
from edgemeter.provisioning.image.changes import Change, Content, Put, Remove, of_bytes
from edgemeter.provisioning.image.detect import Chosen
from edgemeter.provisioning.image.settings import Settings

HERE = Path(__file__).parent
UNIT = "edgemeter-firstboot.service"
PUBLIC_KEY, JOIN, STATUS = "release.pub", "join.toml", "status.txt"
NOT_YET = """Edgemeter, first boot
state:   prepared
step:    none yet: the board has not started from this card, or its system did not call our script
"""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be on the card; `join` and `public_key` are the bytes of their files."""

    bundle: BundleFiles
    join: bytes
    public_key: bytes
    settings: Settings
    form: detect.Format | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be changed, in the order in which it is: what is stale goes, then the payload comes, then what starts it.

    `former` is where an earlier preparation for another format is taken out; that comes last, beside what starts it now.
    """

    where: str
    chosen: Chosen
    also_firing: list[str]
    former: list[str]
    steps: tuple[list[Change], ...]
    unchanged: int

    def changes(self) -> Iterator[Change]:
        """Yield every change in order."""
        for step in self.steps:
            yield from step

    @property
    def size_bytes(self) -> int:
        """How many bytes are written."""
        return sum(change.content.size_bytes for change in self.changes() if isinstance(change, Put))


def plan(boot: BootPartition, order: Order) -> Plan:
    """Return what has to change on `boot`; what is there already as it should be is left alone.

    Raises:
        ConfigError: the format cannot be told, or a file of the system cannot be added to.
        UnavailableError: there is not enough room; nothing has been written.
    """
    chosen = detect.choose(boot, order.form)
    payload = list(_payload(order))
    after = former.without_former(boot, chosen.form)
    adapter = _adapter(after, chosen, order)
    wanted = {change.path.lower() for change in [*payload, *adapter]}
    stale: list[Change] = [Remove(path) for path in boot.files(launch.FOLDER) if path.lower() not in wanted]
    # Last, and with the new one in its place: until then the card boots by the former.
    leaving = [change for path, change in after.changes.items() if path not in wanted]
    steps = (stale, _differing(boot, payload), [*_differing(boot, adapter), *leaving])
    kept = len(payload) + len(adapter) + len(leaving) - len(steps[1]) - len(steps[2])
    taken_out = [change.path for change in after.changes.values()]
    made = Plan(boot.where, chosen, detect.also_firing(after, chosen.form), taken_out, steps, kept)
    freed = sum(size for path, size in boot.files(launch.FOLDER).items() if path.lower() not in wanted)
    missing = boot.missing_bytes([*steps[1], *steps[2]]) - freed
    if missing > 0:
        more = f"{missing / 1e6:,.1f} MB more are needed"
        message = f"the boot partition of {boot.where} is too full: {more}; take a smaller bundle, or delete files there"
        raise UnavailableError(message)
    return made


def carry_out(boot: BootPartition, made: Plan, wrote: Callable[[int], None]) -> None:
    """Change the boot partition as planned; cut off at any moment, the card boots as it did, and a repeated call completes it."""
    for step in made.steps:
        if step:
            boot.apply(step, wrote)


def verify(boot: BootPartition, made: Plan, read: Callable[[int], None]) -> None:
    """Compare every byte that was to be written with what a fresh look at the card shows: cards acknowledge what they never keep.

    Raises:
        UnavailableError: one differs.
    """
    for change in made.changes():
        content = boot.content(change.path)
        is_right = content is None if isinstance(change, Remove) else content is not None and _is_same(content, change.content, read)
        if not is_right:
            message = f"{change.path!r} on {boot.where} does not read as it was written: the card or its reader is bad, take another"
            raise UnavailableError(message)


def _payload(order: Order) -> Iterator[Put]:
    for path, content in order.bundle.files.items():
        yield Put(f"{launch.FOLDER}/{path}", content)
    own = {name: (HERE / name).read_bytes() for name in ("firstboot.sh", UNIT)}
    own |= {PUBLIC_KEY: order.public_key, JOIN: order.join, STATUS: NOT_YET.encode()}
    for name, data in own.items():
        yield Put(f"{launch.FOLDER}/{name}", of_bytes(data))


def _adapter(boot: Readable, chosen: Chosen, order: Order) -> list[Change]:
    if chosen.form == "preseed":
        return preseed.changes(boot, order.settings)
    if chosen.form == "firstrun":
        return firstrun.changes(boot, order.settings)
    start = launch.FROM_STICK if chosen.form == "cidata" else launch.FROM_BOOT
    return cloudinit.changes(boot, order.settings, _instance(order), start)


def _instance(order: Order) -> str:
    """Return a name for this set-up: another token, bundle or setting is another instance, the same ones are the same."""
    digest = hashlib.sha256(order.join + repr((order.settings, order.settings.wifi and order.settings.wifi.psk_hex)).encode())
    for chunk in order.bundle.files["manifest.json"].chunks():
        digest.update(chunk)
    return f"edgemeter-{digest.hexdigest()[:16]}"


def _differing(boot: BootPartition, changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if isinstance(change, Remove) or not _is_there(boot, change)]


def _is_there(boot: BootPartition, put: Put) -> bool:
    content = boot.content(put.path)
    return content is not None and _is_same(content, put.content, lambda _: None)


def _is_same(pieces: Iterable[bytes], content: Content, read: Callable[[int], None]) -> bool:
    """Whether the two give the same bytes, whatever the sizes of their pieces."""
    left = b""
    expected = content.chunks()
    for piece in pieces:
        read(len(piece))
        while len(left) < len(piece):
            more = next(expected, b"")
            if not more:
                return False
            left += more
        if left[: len(piece)] != piece:
            return False
        left = left[len(piece) :]
    return not left and not next(expected, b"")
