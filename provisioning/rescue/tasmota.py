"""Plugs and relays with Tasmota firmware, over HTTP or over MQTT at the fleet's own broker.

    switch = "tasmota://192.0.2.41"         # over HTTP; of several relays "tasmota://192.0.2.41/2"
    switch = "tasmota-mqtt://plug-7"        # over MQTT: the plug's Topic; of several relays "tasmota-mqtt://plug-7/2"

HTTP: `GET /cm?cmnd=Power1%20Off` answers `{"POWER1":"OFF"}`. MQTT: `cmnd/TOPIC/Power1` switches, `stat/TOPIC/RESULT` answers; the plug
keeps Tasmota's default FullTopic (`%prefix%/%topic%/`), and the broker's access list has to let the plug and `edgemeter-fleet` use
`cmnd/TOPIC/+` and `stat/TOPIC/+`.

Set `PowerOnState 1` on its console: with the default (3) a board that was off when the mains failed stays off. Nothing is ever sent
retained: a retained POWER message would switch the plug at each of its starts.

Source: Tasmota documentation, MQTT, Commands (Power, Backlog, Delay, PowerOnState), PowerOnState configuration.
Tested with: a server that gives the documented answers, and a client that answers as documented at a real broker; not yet on a device.
"""

import queue
import secrets
import time
from typing import Any, Literal
from urllib.parse import quote

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.mqtt_session import CONNECT_TIMEOUT_S, Message, MqttSession, SessionEvents, SessionProfile
from edgemeter.provisioning.inventory.fleet_file import fleet_broker_address
from edgemeter.provisioning.rescue import Power
from edgemeter.provisioning.rescue.wiring import HttpSwitch, Sleep, Wiring, wait_for_timer

ALWAYS_ON = 1
NOT_ALWAYS_ON = "PowerOnState is {}: set `PowerOnState 1` on its console, or it may stay off after a power cut of its own"

# `Delay` counts tenths of a second. Source: Tasmota documentation, Commands, Backlog.
TENTHS = 10
ANSWER_S = 5.0


def relay_state(answer: dict[str, Any], relay: str) -> bool | None:
    """Return whether an answer reports the relay as on; None where it does not mention it. A single relay has no number."""
    names = {relay.upper(), "POWER1", "POWER"} if relay in {"Power", "Power1"} else {relay.upper()}
    return next((answer[name] == "ON" for name in names if answer.get(name) in {"ON", "OFF"}), None)


class _Tasmota:
    """One relay of one plug; `_ask` sends a command with its value, and returns the answer."""

    def __init__(self, wired: Wiring) -> None:
        self.who = wired.who
        self.relay = f"Power{wired.part}"

    def turn(self, to: Literal["on", "off"]) -> None:
        """Switch on or off."""
        if self._is_on(self._ask(self.relay, to.capitalize())) is not (to == "on"):
            raise UnavailableError(f"{self.who} did not turn {to.capitalize()}: is its relay interlocked?")

    def cycle(self, off_s: float, sleep: Sleep = time.sleep) -> None:
        """Switch off; the plug itself switches on again."""
        self._ask("Backlog", f"{self.relay} Off; Delay {off_s * TENTHS:.0f}; {self.relay} On")
        wait_for_timer(self, off_s, sleep)

    def state(self) -> Power:
        """Return whether it is on, and whether it would be after a power cut of its own."""
        is_on = self._is_on(self._ask(self.relay, ""))
        power_on_state = self._ask("PowerOnState", "").get("PowerOnState")
        return Power(is_on, () if power_on_state == ALWAYS_ON else (NOT_ALWAYS_ON.format(power_on_state),))

    def _is_on(self, answer: dict[str, Any]) -> bool:
        is_on = relay_state(answer, self.relay)
        if is_on is None:
            raise UnavailableError(f"{self.who} answers {str(answer)[:80]!r}: it has no relay of that number")
        return is_on

    def _ask(self, command: str, value: str) -> dict[str, Any]:
        raise NotImplementedError


class TasmotaHttp(_Tasmota):
    """One relay of one plug, over HTTP."""

    def __init__(self, wired: Wiring) -> None:
        super().__init__(wired)
        self._http = HttpSwitch(wired)

    def _ask(self, command: str, value: str) -> dict[str, Any]:
        http = self._http
        # Tasmota takes the password in the query.
        login = f"user={quote(http.user)}&password={quote(http.password())}&" if http.has_password else ""
        answer = http.get(f"/cm?{login}cmnd={quote(f'{command} {value}'.strip())}")
        if "WARNING" in answer:
            raise UnavailableError(f"{self.who} refuses ({answer['WARNING']}): give it user and password_file in a [switch.NAME]")
        return answer


class TasmotaMqtt(_Tasmota):
    """One relay of one plug, over MQTT."""

    def __init__(self, wired: Wiring, broker: str | None = None) -> None:
        super().__init__(wired)
        self._wired = wired
        self._broker = broker

    def _ask(self, command: str, value: str) -> dict[str, Any]:
        topic = self._wired.place
        conversation = _Conversation(topic)
        address = fleet_broker_address(self._wired.folder, self._broker)
        session = MqttSession(address, SessionProfile(f"edgemeter-power-{secrets.token_hex(4)}"), conversation)
        conversation.session = session
        session.connect(CONNECT_TIMEOUT_S)
        try:
            session.publish(f"cmnd/{topic}/{command}", value.encode())
            about = command if command == "PowerOnState" else self.relay
            answer = conversation.answer(about, time.monotonic() + ANSWER_S)
        finally:
            session.close()
        if answer is None:
            refused = f" ({conversation.refusal})" if conversation.refusal else ""
            raise TransientError(
                f"{self.who} does not answer at the broker {address}{refused}: is its Topic {topic!r}, and may it use cmnd and stat?"
            )
        return answer


class _Conversation(SessionEvents):
    """The events of one session: it collects the plug's answers."""

    def __init__(self, topic: str) -> None:
        self.session: MqttSession | None = None
        self.refusal: str | None = None
        self._topic = f"stat/{topic}/RESULT"
        self._heard: queue.Queue[bytes] = queue.Queue(100)

    def connected(self) -> None:
        """Subscribe."""
        if self.session is not None:
            self.session.subscribe([self._topic])

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
                answer = decode_json(self._heard.get(timeout=max(0.0, deadline_s - time.monotonic())), Any)
            except queue.Empty:
                return None
            except ValueError:
                continue
            if isinstance(answer, dict) and (about in answer or relay_state(answer, about) is not None):
                return answer
