"""The real mosquitto with the configuration that ships, and clients that show certificates."""

import ssl
import threading
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.fixtures.certificates import Authority, Pair
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import LOOPBACK, Server, free_port, mosquitto_binary


def shipped_broker(folder: Path, deploy: Path, authority: Authority) -> Server:
    """Return mosquitto with the configuration of `deploy`.

    Only its paths and port are those of this test.
    """
    pair = authority.signed("broker", f"DNS:localhost,IP:{LOOPBACK}")
    port = free_port()
    acl = folder / "acl"
    acl.write_bytes((deploy / "acl").read_bytes())
    # mosquitto of root reads it as another user otherwise, who may not look into a test's folder.
    text = "user root\n" + (deploy / "mosquitto.conf").read_text()
    for shipped, path in (
        ("listener 8883", f"listener {port} {LOOPBACK}"),
        ("/etc/mosquitto/certs/ca.crt", str(authority.certificate)),
        ("/etc/mosquitto/certs/broker.crt", str(pair.certificate)),
        ("/etc/mosquitto/certs/broker.key", str(pair.key)),
        ("/etc/mosquitto/acl", str(acl)),
        ("/var/lib/mosquitto/", f"{folder}/"),
    ):
        if shipped not in text:
            raise AssertionError(shipped)
        text = text.replace(shipped, path)
    (folder / "mosquitto.conf").write_text(text)
    return Server([mosquitto_binary(), "-c", str(folder / "mosquitto.conf")], port)


class Client:
    """One client with a certificate.

    It remembers what came, and what the broker said to each publish and subscription.
    """

    def __init__(self, port: int, authority: Authority, pair: Pair | None, client_id: str) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.refusal: str | None = None
        self._answers: dict[int, str] = {}
        self._up = threading.Event()
        client = self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5
        )
        context = ssl.create_default_context(cafile=str(authority.certificate))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        client.tls_set_context(context)
        client.on_connect = self._connected
        client.on_disconnect = self._refused
        client.on_message = lambda _client, _data, message: self.received.append(
            (message.topic, message.payload)
        )
        client.on_publish = lambda _client, _data, mid, reason, _properties: self._answers.update(
            {mid: str(reason)}
        )
        client.on_subscribe = lambda _client, _data, mid, reasons, _properties: (
            self._answers.update({mid: str(reasons[0])})
        )
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 600
        client.connect(LOOPBACK, port, 30, clean_start=False, properties=properties)
        client.loop_start()
        if not self._up.wait(150):
            self.refusal = "no answer"

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> str:
        """Return what the broker said to a publish at QoS 1."""
        return self._answer(self._client.publish(topic, payload, qos=1, retain=retain).mid)

    def subscribe(self, topic: str) -> str:
        """Return what the broker said to a subscription."""
        return self._answer(self._client.subscribe(topic, options=SubscribeOptions(qos=1))[1])

    def has(self, topic: str) -> bool:
        """Return whether something came on `topic` by now or soon."""
        return wait_until(lambda: any(name == topic for name, _ in self.received), 5)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(self, _client, _data, _flags, reason, _properties) -> None:
        self.refusal = str(reason) if reason.is_failure else None
        self._up.set()

    def _refused(self, _client, _data, _flags, reason, _properties) -> None:
        """A broker that does not know the certificate ends the connection without an answer."""
        if not self._up.is_set():
            self.refusal = str(reason)
            self._up.set()

    def _answer(self, mid: int) -> str:
        wait_until(lambda: mid in self._answers)
        return self._answers.get(mid, "no answer")
