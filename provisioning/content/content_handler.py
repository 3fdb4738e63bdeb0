"""The handler that sends content over MQTT: piece by piece, to accepted devices, in turn."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.messages import Topic, parse_topic, topics_of
from edgemeter.agent.contract.orders import Chunk, Want, decode_want, join_chunk
from edgemeter.provisioning.content.store import ContentStore, named_contents
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

# The rate for all devices together: an eighth of a gigabit line, which results and orders share.
BYTES_PER_S = 16 << 20
BURST_BYTES = 4 << 20
# Requests that one device may have open; more are dropped, and come again when the device misses them.
MOST_REQUESTS = 16
WAITING_DEVICES = 10_000
# A revoked device is sent nothing after this time.
TRUST_CHECK_S = 5.0
# Unreferenced content is collected this often.
COLLECT_S = 3600.0


class ContentHandler:
    """Answers every Want with a Chunk, within a budget of bytes; devices take turns, one piece each."""

    topics = (topics_of("want"),)

    def __init__(
        self, folder: FleetFolder, registry: Registry, publish: FleetPublish, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = ContentStore(folder.content)
        self._registry = registry
        self._publish = publish
        self._clock_s = clock_s
        self._budget_bytes = float(BURST_BYTES)
        self._filled_s = clock_s()
        # By device, in the order of their turns; a repeated request is kept once.
        self._queues: OrderedDict[Topic, OrderedDict[tuple[str, int], Want]] = OrderedDict()
        self._trusted: dict[Topic, tuple[float, bool]] = {}
        self._collected_s = clock_s()

    def received(self, message: Message) -> None:
        """Take one request; answer it now where the budget allows."""
        topic = parse_topic(message.topic)
        want = decode_want(message.payload)
        if not self._is_accepted(topic):
            text = "device %r of fleet %r requests content and is not accepted: ignored"
            logger.warning(text, topic.device, topic.fleet, extra=about(topic.device))
            return
        if topic not in self._queues and len(self._queues) >= WAITING_DEVICES:
            return
        queue = self._queues.setdefault(topic, OrderedDict())
        if len(queue) < MOST_REQUESTS or (want.sha256, want.offset) in queue:
            queue[want.sha256, want.offset] = want
        self._answer()

    def poll(self, now_ns: int) -> None:
        """Answer requests that waited for budget; now and then remove unreferenced content."""
        self._answer()
        if not self._queues:
            self._trusted.clear()
        if self._clock_s() - self._collected_s > COLLECT_S:
            self._collected_s = self._clock_s()
            removed = self._store.collect(named_contents(self._registry), now_ns)
            if removed:
                logger.info("removed %d contents that no job, schedule or release refers to", len(removed))

    def close(self) -> None:
        """Drop the open requests."""
        self._queues.clear()

    def _answer(self) -> None:
        now_s = self._clock_s()
        self._budget_bytes = min(BURST_BYTES, self._budget_bytes + BYTES_PER_S * (now_s - self._filled_s))
        self._filled_s = now_s
        while self._queues and self._budget_bytes > 0:
            topic, queue = self._queues.popitem(last=False)
            _, want = queue.popitem(last=False)
            if queue:
                # To the end of the queue.
                self._queues[topic] = queue
            self._send(topic, want)

    def _send(self, topic: Topic, want: Want) -> None:
        content = self._store.read(want.sha256, want.offset, want.length)
        size_bytes, data = content if content is not None else (None, b"")
        head = Chunk(sha256=want.sha256, offset=want.offset, size_bytes=size_bytes)
        payload = join_chunk(head, data)
        self._budget_bytes -= len(payload)
        self._publish(str(Topic(topic.fleet, topic.device, "content")), payload)

    def _is_accepted(self, topic: Topic) -> bool:
        now_s = self._clock_s()
        asked_s, is_accepted = self._trusted.get(topic, (float("-inf"), False))
        if now_s - asked_s > TRUST_CHECK_S:
            device = devices.find(self._registry, topic.device)
            is_accepted = device is not None and device.trust == "accepted" and device.fleet == topic.fleet
            # Names come from the network: no more of them are kept than devices may wait.
            if len(self._trusted) >= WAITING_DEVICES:
                self._trusted.clear()
            self._trusted[topic] = (now_s, is_accepted)
        return is_accepted
