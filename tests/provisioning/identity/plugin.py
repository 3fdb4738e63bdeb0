"""mosquitto's dynamic-security plug-in in this process, as the far end of the operator's session."""

import json

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.provisioning.identity.broker_access import CONTROL, RESPONSE, BrokerAccess


class Plugin:
    """The clients that it holds (their roles, password, whether disabled), what it was ordered, and what was retained."""

    def __init__(self):
        self.clients = {"edgemeter-operator": {"roles": ["operator"]}}
        self.orders = []
        self.retained = {}
        self.refusal = None
        self.fault = None

    def access(self, address=None):
        """Return the operator's session with it."""
        return BrokerAccess(address, self._session)

    def names(self):
        """Return its clients, without the operator."""
        return set(self.clients) - {"edgemeter-operator"}

    def connect(self, _timeout_s):
        """Session: connect."""
        self._events.connected()

    def subscribe(self, _topics):
        """Session: nothing to do."""

    def flush(self, _timeout_s):
        """Session: nothing to do."""

    def close(self):
        """Session: nothing to do."""

    def publish(self, topic, payload, lasting="passing"):
        """Session: carry out commands and answer them, behind another operator's answers; or keep what is retained."""
        if self.refusal is not None:
            self._events.answered(self.refusal)
        elif topic == CONTROL:
            commands = json.loads(payload)["commands"]
            foreign = [{"command": "listClients", "correlationData": "another's", "data": {"clients": []}}] * 2
            for responses in (foreign, [self._carry_out(command) for command in commands]):
                self._events.received(Message(RESPONSE, json.dumps({"responses": responses}).encode()))
        elif lasting == "retained":
            self.retained[topic] = payload
            self._events.answered(None)

    def _session(self, _address, _profile, events):
        self._events = events
        return self

    def _carry_out(self, command):
        kind, name = command["command"], command.get("username")
        answer = {"command": kind, "correlationData": command["correlationData"]}
        if kind == "listClients":
            verbose = [
                {"username": each, "roles": [{"rolename": role} for role in client["roles"]]} for each, client in self.clients.items()
            ]
            return {**answer, "data": {"clients": verbose if command.get("verbose") else list(self.clients)}}
        self.orders.append((kind, name))
        if self.fault is not None:
            return {**answer, "error": self.fault}
        if kind == "createClient":
            roles = [role["rolename"] for role in command.get("roles", [])]
            self.clients[name] = {"roles": roles, "password": command.get("password")}
        elif kind == "deleteClient":
            self.clients.pop(name)
        else:
            self.clients[name]["disabled"] = True
        return answer
