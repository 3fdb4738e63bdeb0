"""Plugs and relays with Tasmota firmware, over MQTT at the fleet's own broker: `cmnd/TOPIC/Power1` is told, `stat/TOPIC/RESULT` answers.

    switch = "tasmota-mqtt://plug-7"        # the plug's Topic; of several relays "tasmota-mqtt://plug-7/2"

The plug keeps Tasmota's default FullTopic (`%prefix%/%topic%/`). Nothing is ever sent retained: a retained POWER message would switch the
plug at each of its starts. Set `PowerOnState 1` on its console. The broker's access list has to let the plug and `edgemeter-fleet` use
`cmnd/TOPIC/+` and `stat/TOPIC/+`.

Source: Tasmota documentation, MQTT, Commands (Power, Backlog, PowerOnState).
Tested with: a client that answers as documented at a real broker; not yet on a device.
"""

import json
import queue
import secrets
import time
from typing import Any, Literal

from edgemeter.agent.delivery.mqtt_session import CONNECT_TIMEOUT_S, Message, MqttSession, Profile
from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.provisioning.rescue import Power, cycling
from edgemeter.provisioning.rescue.tasmota_http import ALWAYS_ON, NOT_ALWAYS_ON, backlog, said
from edgemeter.provisioning.rescue.wiring import Wiring
from edgemeter.provisioning.serve import fleet_broker

ANSWER_S = 5.0


class TasmotaMqtt:
    """One relay of one plug."""

    def __init__(self, wired: Wiring, broker: str | None = None) -> None:
        self._wired = wired
        self._broker = broker
        self._relay = f"Power{wired.part}"

    @property
    def _who(self) -> str:
        return f"switch {self._wired.text!r} of {self._wired.device!r}"

    def on(self) -> None:
        """Give power."""
        self._set("On")

    def off(self) -> None:
        """Take it away."""
        self._set("Off")

    def cycle(self, off_s: float, sleep: cycling.Sleep = time.sleep) -> None:
        """Take it away; the plug itself gives it back."""
        _, _, several = backlog(self._relay, off_s).partition(" ")
        self._ask("Backlog", several, self._relay)
        cycling.await_timer(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether it gives power, and whether it would after a cut of its own."""
        is_on = said(self._ask(self._relay, "", self._relay), self._relay)
        kept = self._ask("PowerOnState", "", "PowerOnState").get("PowerOnState")
        return Power(is_on, () if kept == ALWAYS_ON else (NOT_ALWAYS_ON.format(kept),))

    def _set(self, turn: Literal["On", "Off"]) -> None:
        if said(self._ask(self._relay, turn, self._relay), self._relay) is not (turn == "On"):
            message = f"{self._who} was told to turn {turn} and did not: is its relay interlocked?"
            raise UnavailableError(message)

    def _ask(self, command: str, payload: str, about: str) -> dict[str, Any]:
        """Return the plug's first answer about a relay or a setting."""
        conversation = _Conversation(self._wired.place)
        address = fleet_broker.address(self._wired.folder, self._broker)
        session = MqttSession(address, Profile(f"edgemeter-power-{secrets.token_hex(4)}"), conversation)
        conversation.session = session
        session.connect(CONNECT_TIMEOUT_S)
        try:
            session.publish(f"cmnd/{self._wired.place}/{command}", payload.encode())
            answer = conversation.answer(about, time.monotonic() + ANSWER_S)
        finally:
            session.close()
        if answer is None:
            refused = f" ({conversation.refusal})" if conversation.refusal else ""
            topic = self._wired.place
            message = f"{self._who} does not answer at the broker {address}{refused}: is its Topic {topic!r}, and may it use cmnd and stat?"
            raise TransientError(message)
        return answer


class _Conversation:
    """The events of one session: it hears the plug's answers."""

    def __init__(self, topic: str) -> None:
        self.session: MqttSession | None = None
        self.refusal: str | None = None
        self._topic = f"stat/{topic}/RESULT"
        self._heard: queue.Queue[bytes] = queue.Queue(100)

    def connected(self) -> None:
        """Subscribe."""
        if self.session is not None:
            self.session.subscribe([self._topic])

    def disconnected(self, reason: str) -> None:
        """Take note of nothing: an answer that does not come is told."""

    def received(self, message: Message) -> None:
        """Keep an answer."""
        if message.topic == self._topic and not self._heard.full():
            self._heard.put_nowait(message.payload)

    def answered(self, refusal: str | None) -> None:
        """Keep what the broker refused."""
        self.refusal = refusal or self.refusal

    def answer(self, about: str, deadline_s: float) -> dict[str, Any] | None:
        """Return the first answer that is about a relay or a setting."""
        while True:
            try:
                found = json.loads(self._heard.get(timeout=max(0.0, deadline_s - time.monotonic())))
            except queue.Empty:
                return None
            except ValueError:
                continue
            if isinstance(found, dict) and (about in found or said(found, about) is not None):
                return found
