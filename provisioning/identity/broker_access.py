"""Who may do what at the running broker, changed by messages: mosquitto's dynamic-security plug-in, which needs no reload.

mosquitto 2.0.11 (Debian 12) dies of reloads (SIGHUP) while sessions with an expiry of a few seconds come and go, so nothing here sends one.
The plug-in holds what changes: open enrolment tokens, revoked devices, and the operator, who alone may change it. What it does not know is
left to the ACL file, whose patterns do not change. A broker that does not run reads the plug-in's file when it starts.

Source: mosquitto 2.0, plugins/dynamic-security/README.md (topic API); that the ACL file decides what the plug-in leaves open: our tests.
"""

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.agent.contract.messages import TOPIC_ROOT
from edgemeter.provisioning.identity.broker_files import OPERATOR_USER
from edgemeter.provisioning.registry.certificates import EnrolmentToken

CONTROL = "$CONTROL/dynamic-security/v1"
RESPONSE = f"{CONTROL}/response"
ADMIN_ROLE, TOKEN_ROLE = "operator", "token"
# Of names that are denied everything: for good, or for a time.
REVOKED_ROLE, BANNED_ROLE = "revoked", "banned"
CONNECT_S = 5.0
ANSWER_S = 10.0
# Of one message: mosquitto writes its file after every command.
COMMANDS_AT_ONCE = 100

Command = dict[str, Any]
Document = dict[str, Any]


def _rule(access: str, topic: str, *, allow: bool) -> Document:
    return {"acltype": access, "topic": topic, "priority": 0, "allow": allow}


def _roles() -> list[Document]:
    accesses = ("publishClientSend", "publishClientReceive", "subscribePattern")
    return [
        {"rolename": ADMIN_ROLE, "acls": [_rule(access, f"{CONTROL}/#", allow=True) for access in accesses]},
        # The ACL's pattern for devices would let a token write below its own id.
        {"rolename": TOKEN_ROLE, "acls": [_rule(access, f"{TOPIC_ROOT}/#", allow=False) for access in accesses]},
        *({"rolename": role, "acls": [_rule(access, "#", allow=False) for access in accesses]} for role in (REVOKED_ROLE, BANNED_ROLE)),
    ]


@dataclass(frozen=True, slots=True)
class IntendedAccess:
    """The intended state of the plug-in: open tokens, and the names of revoked devices and of those that are banned for a time."""

    tokens: Sequence[EnrolmentToken]
    revoked: Collection[str]
    banned: Collection[str] = ()

    def denied(self) -> dict[str, str]:
        """Return the role of each name that is denied everything."""
        return {**dict.fromkeys(self.banned, BANNED_ROLE), **dict.fromkeys(self.revoked, REVOKED_ROLE)}


def plugin_file(intended: IntendedAccess) -> bytes:
    """Return the plug-in's file, JSON: what a broker that starts now is to know."""
    clients: list[Document] = [{"username": OPERATOR_USER, "roles": [{"rolename": ADMIN_ROLE}]}]
    for token in intended.tokens:
        _, _, iterations, salt, digest = token.password.split("$")
        hashed = {"password": digest, "salt": salt, "iterations": int(iterations)}
        clients.append({"username": token.token_id, **hashed, "roles": [{"rolename": TOKEN_ROLE}]})
    clients += [{"username": name, "disabled": True, "roles": [{"rolename": role}]} for name, role in sorted(intended.denied().items())]
    access = {"publishClientSend": False, "publishClientReceive": False, "subscribe": False, "unsubscribe": True}
    document = {"defaultACLAccess": access, "clients": clients, "groups": [], "roles": _roles()}
    return (json.dumps(document, indent=1) + "\n").encode()


class BrokerAccess:
    """The operator's session with a running broker and its plug-in, a context.

    Raises:
        UnavailableError: no broker answers.
        ConfigError: it refuses the operator.
    """

    def __init__(self, address: BrokerAddress, make_session: Callable[..., MqttSession] = MqttSession) -> None:
        self._address = address
        # A name of its own: two commands at once do not end each other.
        self._session = make_session(address, SessionProfile(f"{OPERATOR_USER}-{os.urandom(8).hex()}"), self)
        self._changed = threading.Condition()
        self._answers: list[Document] = []
        self._refusals: list[str] = []
        self._lost: str | None = None
        self._asked = ""

    def __enter__(self) -> "BrokerAccess":  # noqa: PYI034 - Self needs Python 3.11
        self._session.connect(CONNECT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def apply(self, read_wanted: Callable[[], IntendedAccess], passwords: Mapping[str, str]) -> list[EnrolmentToken]:
        """Make the broker hold what is wanted; return the tokens that it cannot know, because `passwords` (by token id) lacks them."""
        clients = self._send([{"command": "listClients", "verbose": True}])[0]["data"]["clients"]
        # Read after the broker was asked: another process writes the registry first, then tells the broker.
        intended = read_wanted()
        roles_by_client = {client["username"]: {role["rolename"] for role in client.get("roles", [])} for client in clients}
        tokens = {token.token_id: token for token in intended.tokens}
        denied = intended.denied()
        commands: list[Command] = []
        for name, roles in roles_by_client.items():
            if (roles == {TOKEN_ROLE} and name not in tokens) or (roles & {REVOKED_ROLE, BANNED_ROLE} and name not in denied):
                commands.append({"command": "deleteClient", "username": name})
        for device in sorted(denied.keys() - roles_by_client.keys()):
            commands += [
                {"command": "createClient", "username": device, "roles": [{"rolename": denied[device]}]},
                # This one disconnects the device too.
                {"command": "disableClient", "username": device},
            ]
        missing = [token for name, token in tokens.items() if name not in roles_by_client]
        for token in missing:
            if token.token_id in passwords:
                client = {"username": token.token_id, "password": passwords[token.token_id], "roles": [{"rolename": TOKEN_ROLE}]}
                commands.append({"command": "createClient", **client})
        self._send(commands)
        return [token for token in missing if token.token_id not in passwords]

    def disconnect(self, user: str) -> None:
        """End every session of `user`, who may come back: the plug-in does so when it deletes a client."""
        listed = self._send([{"command": "listClients"}])[0]["data"]["clients"]
        if user in listed:
            self._send([{"command": "disableClient", "username": user}])
            return
        self._send([{"command": "createClient", "username": user}, {"command": "deleteClient", "username": user}])

    def retain(self, topic: str, payload: bytes) -> str | None:
        """Publish a retained message on behalf of a device; return why the broker refuses it, None where it took it."""
        self._refusals.clear()
        self._session.publish(topic, payload, lasting="retained")
        self._session.flush(ANSWER_S)
        return self._refusals[0] if self._refusals else None

    def connected(self) -> None:
        """Session event: subscribe to the plug-in's answers."""
        self._session.subscribe([RESPONSE])

    def disconnected(self, reason: str) -> None:
        """Session event: what was asked is lost."""
        with self._changed:
            self._lost = reason
            self._changed.notify_all()

    def received(self, message: Message) -> None:
        """Session event: one answer."""
        with self._changed:
            # Answers to other operators come too.
            self._answers += [
                response for response in json.loads(message.payload)["responses"] if response.get("correlationData") == self._asked
            ]
            self._changed.notify_all()

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer to a publish."""
        if refusal is not None:
            with self._changed:
                self._refusals.append(refusal)
                self._changed.notify_all()

    def _send(self, commands: Sequence[Command]) -> list[Document]:
        responses: list[Document] = []
        for start in range(0, len(commands), COMMANDS_AT_ONCE):
            responses += self._send_some(commands[start : start + COMMANDS_AT_ONCE])
        return responses

    def _send_some(self, commands: Sequence[Command]) -> list[Document]:
        with self._changed:
            self._answers.clear()
            self._refusals.clear()
            self._asked = os.urandom(8).hex()
            tagged = [{**command, "correlationData": self._asked} for command in commands]
        self._session.publish(CONTROL, json.dumps({"commands": tagged}).encode())
        with self._changed:
            self._changed.wait_for(lambda: bool(len(self._answers) >= len(commands) or self._refusals or self._lost), ANSWER_S)
            answers, refusals, lost = list(self._answers), list(self._refusals), self._lost
        if refusals:
            raise ConfigError(
                f"the broker at {self._address} runs without the configuration of `edgemeter fleet init` ({refusals[0]}): "
                "run that, then restart the broker"
            )
        if lost is not None or len(answers) < len(commands):
            raise UnavailableError(f"the broker at {self._address} did not answer a change of access ({lost or 'no answer'}): try again")
        # Of two processes that do the same, one comes second: what it wanted is so.
        faults = [answer for answer in answers if answer.get("error") not in {None, "Client already exists", "Client not found"}]
        if faults:
            raise ConfigError(f"the broker at {self._address} refuses {faults[0]['command']}: {faults[0]['error']}")
        return answers
