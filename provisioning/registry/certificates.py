"""Who may join and who belongs: certificates, enrolment tokens, requests to decide, devices still to be disconnected, and bans."""

import time
from dataclasses import dataclass, field
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.provisioning.registry.registry import Registry, insert_rows, put_row

KEPT_UNDECIDED = 10_000
RequestDecision = Literal["accepted", "rejected"]
GROWTH = 4


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate: for which device and board, until when, and why it was revoked."""

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
    """Write a certificate that was issued."""
    insert_rows(statements, "certificates", [certificate])


def of_device(registry: Registry, device: str) -> list[Certificate]:
    """Return every certificate of a device, the newest first."""
    return registry.rows(Certificate, "SELECT * FROM certificates WHERE device = ? ORDER BY issued_ns DESC, number", device)


def of_key(registry: Registry, key_sha256: str) -> list[Certificate]:
    """Return every certificate of a key, the newest first."""
    return registry.rows(Certificate, "SELECT * FROM certificates WHERE key_sha256 = ? ORDER BY issued_ns DESC, number", key_sha256)


def revoke(statements: Statements, device: str, now_ns: int, reason: str) -> int:
    """Revoke the valid certificates of a device; return how many."""
    statement = "UPDATE certificates SET revoked_ns = ?, reason = ? WHERE device = ? AND (revoked_ns IS NULL OR revoked_ns > ?)"
    return int(statements.execute(statement, (now_ns, reason, device, now_ns)).rowcount)


def end_previous(statements: Statements, certificate: Certificate, end_ns: int, reason: str) -> int:
    """Let the earlier certificates of a device end at `end_ns`, unless they end already; return how many."""
    statement = "UPDATE certificates SET revoked_ns = ?, reason = ? WHERE device = ? AND issued_ns < ? AND revoked_ns IS NULL"
    return int(statements.execute(statement, (end_ns, reason, certificate.device, certificate.issued_ns)).rowcount)


def revoked(registry: Registry, now_ns: int | None = None) -> set[str]:
    """Return the numbers of all certificates that are revoked at `now_ns`, by default now."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    return {row["number"] for row in registry.query("SELECT number FROM certificates WHERE revoked_ns <= ?", now_ns)}


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """One token by its id: for which device, until when, and the key that it was used with."""

    token_id: str = field(metadata={"column": "claim"})
    password: str
    device: str
    fleet: str
    made_ns: int
    expires_ns: int
    key_sha256: str | None = None
    closed_ns: int | None = None


def put_token(statements: Statements, token: EnrolmentToken) -> None:
    """Write a new token, and close those that the device had before: one device, one token."""
    close_tokens_of(statements, token.device, token.made_ns)
    insert_rows(statements, "claims", [token])


def find_token(registry: Registry, token_id: str) -> EnrolmentToken | None:
    """Return the token of that id, None when there is none."""
    return registry.row(EnrolmentToken, "SELECT * FROM claims WHERE claim = ?", token_id)


def open_tokens(registry: Registry, now_ns: int) -> list[EnrolmentToken]:
    """Return the tokens that may still be used at `now_ns`, by id."""
    return registry.rows(EnrolmentToken, "SELECT * FROM claims WHERE closed_ns IS NULL AND expires_ns > ? ORDER BY claim", now_ns)


def bind_token(statements: Statements, token_id: str, key_sha256: str) -> None:
    """Note the key that the token was used with: it is valid for no other."""
    statements.execute("UPDATE claims SET key_sha256 = ? WHERE claim = ?", (key_sha256, token_id))


def close_token(statements: Statements, token_id: str, now_ns: int) -> None:
    """End a token."""
    statements.execute("UPDATE claims SET closed_ns = ? WHERE claim = ? AND closed_ns IS NULL", (now_ns, token_id))


def close_tokens_of(statements: Statements, device: str, now_ns: int) -> None:
    """End every token of a device."""
    statements.execute("UPDATE claims SET closed_ns = ? WHERE device = ? AND closed_ns IS NULL", (now_ns, device))


@dataclass(frozen=True, slots=True)
class EnrolmentRequest:
    """One request of a board for a name, and why it needs a decision."""

    request: str
    topic: str
    token_id: str | None = field(metadata={"column": "claim"})
    device: str
    fleet: str
    serial: str
    serial_source: str
    board: str | None
    csr: str
    key_sha256: str
    why: str
    asked_ns: int
    decision: RequestDecision | None = None
    name: str | None = None


def put_request(statements: Statements, enrolment_request: EnrolmentRequest) -> None:
    """Write a request; only the last of each board and topic is kept, and at most `KEPT_UNDECIDED` in all."""
    statements.execute("DELETE FROM requests WHERE topic = ? AND serial = ?", (enrolment_request.topic, enrolment_request.serial))
    put_row(statements, "requests", enrolment_request, "request")
    oldest = "SELECT asked_ns FROM requests WHERE decision IS NULL ORDER BY asked_ns DESC LIMIT 1 OFFSET ?"
    statements.execute(f"DELETE FROM requests WHERE decision IS NULL AND asked_ns <= ({oldest})", (KEPT_UNDECIDED,))  # noqa: S608 - our own text


def find_request_of_board(registry: Registry, topic: str, serial: str) -> EnrolmentRequest | None:
    """Return the request of the board with that serial on that topic, None when there is none."""
    return registry.row(EnrolmentRequest, "SELECT * FROM requests WHERE topic = ? AND serial = ?", topic, serial)


def undecided_requests(registry: Registry) -> list[EnrolmentRequest]:
    """Return the requests that wait for a decision, the oldest first."""
    return registry.rows(EnrolmentRequest, "SELECT * FROM requests WHERE decision IS NULL ORDER BY asked_ns, request")


def decided_requests(registry: Registry) -> list[EnrolmentRequest]:
    """Return the accepted requests that have no certificate yet."""
    return registry.rows(EnrolmentRequest, "SELECT * FROM requests WHERE decision = 'accepted' ORDER BY asked_ns")


def find_request(registry: Registry, name: str) -> EnrolmentRequest:
    """Return the one undecided request of the device `name`, or whose id begins so; raises ConfigError if there is none, or more."""
    waiting = undecided_requests(registry)
    matching = [request for request in waiting if request.device == name] or [
        request for request in waiting if request.request.startswith(name)
    ]
    if not matching:
        raise ConfigError(f"no pending request matches {name!r}, and no board of that name reports: see `edgemeter fleet requests`")
    if len(matching) > 1:
        which = ", ".join(f"{request.request[:12]} (serial {request.serial})" for request in matching)
        raise ConfigError(f"{len(matching)} pending requests match {name!r}: name one by its request: {which}")
    return matching[0]


def decide_request(statements: Statements, request: str, decision: RequestDecision, name: str | None = None) -> None:
    """Note a decision."""
    statements.execute("UPDATE requests SET decision = ?, name = ? WHERE request = ?", (decision, name, request))


def delete_request(statements: Statements, request: str) -> None:
    """Delete a request that was answered."""
    statements.execute("DELETE FROM requests WHERE request = ?", (request,))


def put_pending_disconnect(statements: Statements, device: str, now_ns: int) -> None:
    """Have a device disconnected from the running broker."""
    statement = "INSERT INTO expulsions VALUES (?, ?) ON CONFLICT (device) DO UPDATE SET since_ns = excluded.since_ns"
    statements.execute(statement, (device, now_ns))


def pending_disconnects(registry: Registry) -> list[str]:
    """Return the devices that are still to be disconnected, the oldest first."""
    return [row["device"] for row in registry.query("SELECT device FROM expulsions ORDER BY since_ns, device")]


def delete_pending_disconnect(statements: Statements, device: str) -> None:
    """Note that a device was disconnected, or need not be any more."""
    statements.execute("DELETE FROM expulsions WHERE device = ?", (device,))


FIRST_BAN_NS = 60 * NS_PER_S
LONGEST_BAN_NS = NS_PER_DAY
# A device that was good for so long after a ban begins anew.
FORGOTTEN_NS = NS_PER_DAY


@dataclass(frozen=True, slots=True)
class Ban:
    """The last ban of a device, its `count`th in a row: from when until when (UTC), and what the device did.

    A device that keeps others from working is refused by the broker for a time, which grows from ban to ban and ends by itself.
    """

    device: str
    count: int
    since_ns: int
    until_ns: int
    reason: str


def ban_device(statements: Statements, registry: Registry, device: str, reason: str, now_ns: int) -> Ban | None:
    """Ban a device within the caller's transaction, longer than the last time; return the ban, None where it is banned already."""
    before = registry.row(Ban, "SELECT * FROM bans WHERE device = ?", device)
    if before is not None and before.until_ns > now_ns:
        return None
    count = before.count + 1 if before is not None and now_ns - before.until_ns < FORGOTTEN_NS else 1
    length_ns = min(LONGEST_BAN_NS, FIRST_BAN_NS * GROWTH ** min(count - 1, 10))
    ban = Ban(device, count, now_ns, now_ns + length_ns, reason)
    put_row(statements, "bans", ban, "device")
    put_pending_disconnect(statements, device, now_ns)
    return ban


def end_ban(statements: Statements, device: str) -> None:
    """End the ban of a device, and forget those before it, within the caller's transaction."""
    statements.execute("DELETE FROM bans WHERE device = ?", (device,))


def active_bans(registry: Registry, now_ns: int) -> dict[str, Ban]:
    """Return the bans that hold at `now_ns`, by device."""
    return {ban.device: ban for ban in registry.rows(Ban, "SELECT * FROM bans WHERE until_ns > ? ORDER BY device", now_ns)}
