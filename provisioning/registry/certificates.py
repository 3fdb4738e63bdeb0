"""Membership: certificates, enrolment tokens, requests to decide, sessions to end, and bans."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.number_text import age
from edgemeter.agent.base.statements import Statements
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)

KEPT_UNDECIDED = 10_000
RequestDecision = Literal["accepted", "rejected"]
GROWTH = 4


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate: its device and board, its end, and why it was revoked."""

    number: str
    device: str
    serial: str
    key_sha256: str
    pem: str
    issued_ns: int
    not_after_ns: int
    revoked_ns: int | None = None
    reason: str | None = None


def put(statements: Statements, certificate: Certificate) -> None:
    statements.execute(
        "INSERT INTO certificates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(certificate)
    )


def of_device(registry: Registry, device: str) -> list[Certificate]:
    """Return every certificate of a device, the newest first."""
    rows = registry.query(
        "SELECT * FROM certificates WHERE device = ? ORDER BY issued_ns DESC, number", device
    )
    return [Certificate(**row) for row in rows]


def of_key(registry: Registry, key_sha256: str) -> list[Certificate]:
    """Return every certificate of a key, the newest first."""
    rows = registry.query(
        "SELECT * FROM certificates WHERE key_sha256 = ? ORDER BY issued_ns DESC, number",
        key_sha256,
    )
    return [Certificate(**row) for row in rows]


def revoke(
    statements: Statements, device: str, end_ns: int, reason: str, before: Certificate | None = None
) -> int:
    """Revoke the certificates of a device that do not end by `end_ns`; return how many.

    With `before`, only those are revoked that were issued before that one.
    """
    statement = """UPDATE certificates SET revoked_ns = ?, reason = ?
    WHERE device = ? AND (revoked_ns IS NULL OR revoked_ns > ?) AND (? IS NULL OR issued_ns < ?)"""
    before_ns = before and before.issued_ns
    return int(
        statements.execute(
            statement, (end_ns, reason, device, end_ns, before_ns, before_ns)
        ).rowcount
    )


def refused(registry: Registry, now_ns: int) -> set[str]:
    """Return the numbers of the certificates refused at `now_ns`.

    They are revoked, or of a banned device.
    """
    revoked = registry.query("SELECT number FROM certificates WHERE revoked_ns <= ?", now_ns)
    banned = registry.query(
        "SELECT number FROM certificates JOIN bans USING (device) WHERE until_ns > ?", now_ns
    )
    return {row["number"] for row in (*revoked, *banned)}


def is_refused(registry: Registry, number: str, now_ns: int) -> bool:
    """Return whether the certificate of that number is among the `refused`."""
    statement = """SELECT 1 FROM certificates LEFT JOIN bans USING (device)
    WHERE number = ? AND (revoked_ns <= ? OR until_ns > ?)"""
    return bool(registry.query(statement, number, now_ns, now_ns))


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """One token by its id: its device, its expiry, and the key that it was used with."""

    device: str
    token_id: str
    fleet: str
    expires_ns: int
    key_sha256: str | None = None


def put_token(statements: Statements, token: EnrolmentToken) -> None:
    """Write a new token, replacing the device's previous one."""
    statements.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?)", astuple(token))


def find_token(registry: Registry, token_id: str) -> EnrolmentToken | None:
    return next(
        (
            EnrolmentToken(**row)
            for row in registry.query("SELECT * FROM tokens WHERE token_id = ?", token_id)
        ),
        None,
    )


def bind_token(statements: Statements, token_id: str, key_sha256: str) -> None:
    """Store the key that the token was used with: it is valid for no other."""
    statements.execute(
        "UPDATE tokens SET key_sha256 = ? WHERE token_id = ?", (key_sha256, token_id)
    )


def end_token(
    statements: Statements, column: Literal["device", "token_id", "key_sha256"], value: str
) -> None:
    """End the token of a device, that of an id, or the one that was used with a key."""
    # The names are our own.
    statements.execute(f"DELETE FROM tokens WHERE {column} = ?", (value,))  # noqa: S608


@dataclass(frozen=True, slots=True)
class EnrolmentRequest:
    """One request of a board, and why it needs a decision.

    `request` stays the same when the board asks again. It came with a token for `device`, or, from
    a copied card, with the certificate of `device`. `name` is the accepted one.
    """

    request: str
    token_id: str | None
    device: str
    fleet: str
    serial: str
    serial_source: str
    board: str | None
    key_sha256: str
    why: str
    asked_ns: int
    decision: RequestDecision | None = None
    name: str | None = None


def put_request(statements: Statements, request: EnrolmentRequest) -> None:
    """Write a request, replacing the previous one of this board.

    At most `KEPT_UNDECIDED` are kept in all.
    """
    statements.execute(
        "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        astuple(request),
    )
    oldest = (
        "SELECT asked_ns FROM requests WHERE decision IS NULL ORDER BY asked_ns DESC "
        "LIMIT 1 OFFSET ?"
    )
    statements.execute(
        # The text is our own.
        f"DELETE FROM requests WHERE decision IS NULL AND asked_ns <= ({oldest})",  # noqa: S608
        (KEPT_UNDECIDED,),
    )


def find_request(registry: Registry, request: str) -> EnrolmentRequest | None:
    return next(
        (
            EnrolmentRequest(**row)
            for row in registry.query("SELECT * FROM requests WHERE request = ?", request)
        ),
        None,
    )


def undecided_requests(registry: Registry) -> list[EnrolmentRequest]:
    return [
        EnrolmentRequest(**row)
        for row in registry.query(
            "SELECT * FROM requests WHERE decision IS NULL ORDER BY asked_ns, request"
        )
    ]


def waiting_request(registry: Registry, name: str) -> EnrolmentRequest | None:
    """Return the one undecided request of the device `name`, or whose id begins with it, or None.

    Raises:
        ConfigError: there is more than one.
    """
    waiting = undecided_requests(registry)
    matching = [request for request in waiting if request.device == name] or [
        request for request in waiting if len(name) >= 4 and request.request.startswith(name)
    ]
    if len(matching) > 1:
        which = ", ".join(
            f"{request.request[:12]} (serial {request.serial})" for request in matching
        )
        raise ConfigError(
            f"{len(matching)} pending requests match {name!r}: name one by its request: {which}"
        )
    return matching[0] if matching else None


def decide_request(
    statements: Statements, request: str, decision: RequestDecision, name: str | None = None
) -> None:
    """Store a decision, which the board gets when it asks again."""
    statements.execute(
        "UPDATE requests SET decision = ?, name = ? WHERE request = ?", (decision, name, request)
    )


def delete_request(statements: Statements, request: str) -> None:
    """Delete a request whose board has its certificate."""
    statements.execute("DELETE FROM requests WHERE request = ?", (request,))


def note_sessions(
    statements: Statements, opened: Mapping[str, str], closed: Collection[str]
) -> None:
    """Store the client ids that devices connected with, and remove those that ended.

    `opened` has the device by client id, `closed` the client ids whose session ended.
    """
    statements.executemany("INSERT OR REPLACE INTO sessions VALUES (?, ?)", list(opened.items()))
    statements.executemany(
        "DELETE FROM sessions WHERE client_id = ?", [(client_id,) for client_id in closed]
    )


def client_ids(registry: Registry, device: str) -> list[str]:
    """Return the known client ids with which a device is connected; its name is the usual one."""
    rows = registry.query(
        "SELECT client_id FROM sessions WHERE device = ? ORDER BY client_id", device
    )
    return [device, *(row["client_id"] for row in rows if row["client_id"] != device)]


def put_pending_disconnect(statements: Statements, device: str, now_ns: int) -> None:
    """Schedule the end of a device's sessions at the running broker."""
    statements.execute("INSERT OR REPLACE INTO pending_disconnects VALUES (?, ?)", (device, now_ns))


def pending_disconnects(registry: Registry) -> list[str]:
    """Return the devices that are still to be disconnected, oldest first."""
    return [
        row["device"]
        for row in registry.query(
            "SELECT device FROM pending_disconnects ORDER BY since_ns, device"
        )
    ]


def delete_pending_disconnect(statements: Statements, device: str) -> None:
    statements.execute("DELETE FROM pending_disconnects WHERE device = ?", (device,))


FIRST_BAN_NS = 60 * NS_PER_S
LONGEST_BAN_NS = NS_PER_DAY
# After this long without another ban, the next one starts at the shortest duration.
FORGOTTEN_NS = NS_PER_DAY


@dataclass(frozen=True, slots=True)
class Ban:
    """The last ban of a device, its `count`th in a row: from when until when (UTC), and the reason.

    The broker refuses a device that keeps others from working for a time, which grows from ban to
    ban and ends automatically.
    """

    device: str
    count: int
    since_ns: int
    until_ns: int
    reason: str


def ban_device(
    statements: Statements, registry: Registry, device: str, reason: str, now_ns: int
) -> Ban | None:
    """Ban a device within the caller's transaction, longer than the last time.

    Return the ban, None if it is banned already.
    """
    before = next(
        (Ban(**row) for row in registry.query("SELECT * FROM bans WHERE device = ?", device)), None
    )
    if before is not None and before.until_ns > now_ns:
        return None
    count = (
        before.count + 1 if before is not None and now_ns - before.until_ns < FORGOTTEN_NS else 1
    )
    length_ns = min(LONGEST_BAN_NS, FIRST_BAN_NS * GROWTH ** min(count - 1, 10))
    ban = Ban(device, count, now_ns, now_ns + length_ns, reason)
    statements.execute("INSERT OR REPLACE INTO bans VALUES (?, ?, ?, ?, ?)", astuple(ban))
    put_pending_disconnect(statements, device, now_ns)
    logger.warning("%s is banned for %s: %s", device, age(length_ns), reason)
    return ban


def end_ban(statements: Statements, device: str) -> None:
    """End the ban of a device, and forget earlier ones, within the caller's transaction."""
    statements.execute("DELETE FROM bans WHERE device = ?", (device,))


def active_bans(registry: Registry, now_ns: int) -> dict[str, Ban]:
    return {
        row["device"]: Ban(**row)
        for row in registry.query("SELECT * FROM bans WHERE until_ns > ? ORDER BY device", now_ns)
    }
