"""Access rules over HTTP, for brokers that ask who may connect and do what: RMQTT, EMQX, NanoMQ, VerneMQ; one node or a cluster.

A broker asks at `/certificate/...` for clients whose certificate it has verified, and whose common name is the user's name, and at
`/token/...` for those at the port without certificates: which of both a client came through, only the broker knows.

Sources: rmqtt-auth-http 0.24 (README: the body of a 200 decides, any other status is ignored); EMQX 5.8, HTTP authentication and
authorization (the same); NanoMQ 0.23, HTTP authentication (200 allows; only connections are asked about); VerneMQ 2, webhooks.
"""

import base64
import hmac
import json
import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import parse_qsl

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.http_server import HttpHandler, HttpServer
from edgemeter.agent.base.log_limit import about
from edgemeter.provisioning.identity.broker_files import (
    SERVICE_RULES,
    AclAccess,
    device_rules,
    hash_password,
    service_rules,
    token_rules,
)
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.certificates import active_bans, open_tokens
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import covers

logger = logging.getLogger(__name__)

Entrance = Literal["certificate", "token"]
# A change in the registry counts after this time.
REFRESH_S = 1.0
LARGEST_REQUEST_BYTES = 64 << 10
# RMQTT and NanoMQ say 1 and 2, EMQX the words, VerneMQ the name of the hook.
ACCESS: Mapping[str, AclAccess] = {
    "1": "read", "2": "write", "subscribe": "read", "publish": "write", "auth_on_subscribe": "read", "auth_on_publish": "write",
}  # fmt: skip
_URL = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[^/:@\[\]\s]+):(\d{1,5})/?")
_PATH = re.compile(r"(?:/(nanomq|vernemq))?/(certificate|token)/(connect|access)")


# Counts that change with the rules: cheaper than reading all devices of a large fleet every second.
_STATE = """SELECT
    (SELECT count(*) FROM devices WHERE standing = 'accepted'),
    (SELECT count(*) FROM devices),
    (SELECT max(changed_ns) FROM devices),
    (SELECT count(*) FROM claims WHERE closed_ns IS NULL AND expires_ns > ?),
    (SELECT max(made_ns) FROM claims),
    (SELECT count(*) FROM bans WHERE until_ns > ?),
    (SELECT max(since_ns) FROM bans)"""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules at one moment: the names of accepted devices that are not banned, open tokens by id, and the names of all fleets."""

    device_names: frozenset[str]
    passwords: Mapping[str, str]
    fleets: frozenset[str]

    def may_connect(self, entrance: Entrance, name: str, password: str) -> bool:
        """Return whether a client may connect by that entrance."""
        if entrance == "certificate":
            return name in self.device_names or name in SERVICE_RULES
        hashed = self.passwords.get(name)
        return hashed is not None and hmac.compare_digest(hash_password(password, base64.b64decode(hashed.split("$")[3])), hashed)

    def may_access(self, entrance: Entrance, name: str, access: AclAccess, topic: str) -> bool:
        """Return whether a client may read (subscribe to) or write `topic`."""
        if access == "write" and any(character in topic for character in "+#"):
            return False
        if access == "read" and topic.startswith("$share/"):
            topic = topic.partition("/")[2].partition("/")[2]
        return any(granted == access and covers(pattern, topic) for granted, pattern in self._granted(entrance, name))

    def _granted(self, entrance: Entrance, name: str) -> list[tuple[AclAccess, str]]:
        if entrance == "token":
            return token_rules(name) if name in self.passwords else []
        of_device = [rule for fleet in self.fleets for rule in device_rules(fleet, name)] if name in self.device_names else []
        return service_rules(name) or of_device


_NOTHING = AccessRules(frozenset(), {}, frozenset())


def access_rules_of(folder: FleetFolder, registry: Registry, now_ns: int) -> AccessRules:
    """Return the rules by the registry, at `now_ns`."""
    known_devices, tokens, banned = devices.read(registry), open_tokens(registry, now_ns), active_bans(registry, now_ns)
    fleets = {fleet_file.read(folder.fleet_file).fleet, *(device.fleet for device in known_devices), *(token.fleet for token in tokens)}
    return AccessRules(
        frozenset(device.device for device in known_devices if device.trust == "accepted" and device.device not in banned),
        {token.token_id: token.password for token in tokens},
        frozenset(fleets),
    )


class AccessServer(HttpServer):
    """Answers brokers at `url` (`access_url` of fleet.toml); `start` once, `stop` once or more.

    While the registry cannot be read nobody may do anything.

    Raises:
        ConfigError: the URL is not `http://HOST:PORT`.
        UnavailableError: the port cannot be listened at.
    """

    most_connections = 1024

    def __init__(self, folder: FleetFolder, url: str) -> None:
        match = _URL.fullmatch(url)
        if match is None:
            raise ConfigError(f"access_url = {url!r}: write http://HOST:PORT, an address of this machine that only the brokers reach")
        super().__init__(match[1].strip("[]"), int(match[2]), _AccessHandler, "access_url in fleet.toml")
        self._folder = folder
        self._refreshing = threading.Lock()
        self._refreshed_s = float("-inf")
        self._rules = _NOTHING
        self._state: tuple[object, ...] = ()

    def rules(self) -> AccessRules:
        """Return the rules as they are, at most `REFRESH_S` ago."""
        with self._refreshing:
            if time.monotonic() - self._refreshed_s > REFRESH_S:
                try:
                    self._refresh(time.time_ns())
                except EdgemeterError as error:
                    logger.warning("brokers are told that nobody may do anything: %s", error, extra=about("the registry"))
                    self._rules, self._state = _NOTHING, ()
                self._refreshed_s = time.monotonic()
            return self._rules

    def _refresh(self, now_ns: int) -> None:
        with open_registry(self._folder, read_only=True) as registry:
            state = tuple(registry.query(_STATE, now_ns, now_ns)[0])
            if state != self._state:
                self._rules, self._state = access_rules_of(self._folder, registry, now_ns), state


class _AccessHandler(HttpHandler):
    server: AccessServer

    def answer(self) -> None:
        self.respond(HTTPStatus.METHOD_NOT_ALLOWED, headers=[("Allow", "POST")])

    def do_POST(self) -> None:  # noqa: N802 - the base class's name
        """Answer a broker."""
        match = _PATH.fullmatch(self.path)
        size_bytes = int(text) if (text := self.headers.get("Content-Length") or "").isdigit() else -1
        if match is None or not 0 <= size_bytes <= LARGEST_REQUEST_BYTES:
            self.close_connection = True
            self.respond(HTTPStatus.NOT_FOUND if match is None else HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        dialect, entrance, question = match.groups()
        fields = _fields(self.rfile.read(size_bytes), self.headers.get("Content-Type") or "")
        allows = fields is not None and self._allows(entrance, question, fields)  # type: ignore[arg-type]
        if not allows:
            logger.info(
                "denied: %s %s of %r", question, (fields or {}).get("topic", ""), (fields or {}).get("username"), extra=about("access")
            )
        body: dict[str, Any] = {"result": "allow" if allows else "deny"}
        if dialect == "vernemq":
            body = {"result": "ok" if allows else {"error": "not_allowed"}}
        status = HTTPStatus.OK if allows or dialect != "nanomq" else HTTPStatus.FORBIDDEN
        self.respond(status, json.dumps(body).encode(), [("Content-Type", "application/json")])

    def _allows(self, entrance: Entrance, question: str, fields: Mapping[str, Any]) -> bool:
        rules = self.server.rules()
        name = str(fields.get("username") or "")
        if question == "connect":
            return rules.may_connect(entrance, name, str(fields.get("password") or ""))
        access = ACCESS.get(str(fields.get("access") or fields.get("action") or self.headers.get("vernemq-hook", "").removesuffix("_m5")))
        listed = fields.get("topics")
        topics = (
            [str(entry.get("topic")) for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else [fields.get("topic")]
        )
        return access is not None and bool(topics) and all(rules.may_access(entrance, name, access, str(topic)) for topic in topics)


def _fields(body: bytes, content_type: str) -> dict[str, Any] | None:
    """Return what a broker asks: JSON, or a form; None if it is neither."""
    try:
        if "json" not in content_type:
            return dict(parse_qsl(body.decode(), keep_blank_values=True))
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
