"""The desk that hands out content over MQTT: piece by piece, to accepted devices, and to each in its turn."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from edgemeter.agent.delivery.log_limit import about
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import EVERY_WANT, Topic, parse
from edgemeter.agent.jobs.contract import Chunk, Want, decode_want, join_chunk
from edgemeter.provisioning.content import named
from edgemeter.provisioning.content.store import ContentStore
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.desk import Publish

logger = logging.getLogger(__name__)

# What all devices together are sent: an eighth of a gigabit line, since results and orders take the same way.
BYTES_PER_S = 16 << 20
BURST_BYTES = 4 << 20
# What one device may wait for; a wish beyond it is dropped, and comes again when the device misses it.
WISHES_OF_ONE = 16
WAITING_DEVICES = 10_000
# A device that was revoked gets nothing after this.
STANDING_S = 5.0
# What nobody names any more is looked for this often.
COLLECT_S = 3600.0


class ContentDesk:
    """Answers every Want with a Chunk, within a budget of bytes; devices take turns, one piece each."""

    topics = (EVERY_WANT,)

    def __init__(self, folder: FleetFolder, registry: Registry, publish: Publish, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._store = ContentStore(folder.content)
        self._registry = registry
        self._publish = publish
        self._clock_s = clock_s
        self._budget_bytes = float(BURST_BYTES)
        self._filled_s = clock_s()
        # By device, in the order of whose turn it is; a wish that comes twice stands once.
        self._wishes: OrderedDict[Topic, OrderedDict[tuple[str, int], Want]] = OrderedDict()
        self._standing: dict[Topic, tuple[float, bool]] = {}
        self._collected_s = clock_s()

    def received(self, message: Message) -> None:
        """Take one wish; answer it now when there is budget."""
        topic = parse(message.topic)
        want = decode_want(message.payload)
        if not self._is_accepted(topic):
            text = "device %r of fleet %r asks for content and is not accepted: ignored"
            logger.warning(text, topic.device, topic.fleet, extra=about(topic.device))
            return
        if topic not in self._wishes and len(self._wishes) >= WAITING_DEVICES:
            return
        wishes = self._wishes.setdefault(topic, OrderedDict())
        if len(wishes) < WISHES_OF_ONE or (want.sha256, want.offset) in wishes:
            wishes[want.sha256, want.offset] = want
        self._answer()

    def look(self, now_ns: int) -> None:
        """Answer what waited for budget; now and then remove what nobody names any more."""
        self._answer()
        if not self._wishes:
            self._standing.clear()
        if self._clock_s() - self._collected_s > COLLECT_S:
            self._collected_s = self._clock_s()
            gone = self._store.collect(named.read(self._registry), now_ns)
            if gone:
                logger.info("removed %d contents that no job, schedule or release names", len(gone))

    def close(self) -> None:
        """Forget who waits."""
        self._wishes.clear()

    def _answer(self) -> None:
        now_s = self._clock_s()
        self._budget_bytes = min(BURST_BYTES, self._budget_bytes + BYTES_PER_S * (now_s - self._filled_s))
        self._filled_s = now_s
        while self._wishes and self._budget_bytes > 0:
            topic, wishes = self._wishes.popitem(last=False)
            _, want = wishes.popitem(last=False)
            if wishes:
                # To the end of the line.
                self._wishes[topic] = wishes
            self._send(topic, want)

    def _send(self, topic: Topic, want: Want) -> None:
        found = self._store.read(want.sha256, want.offset, want.length)
        size_bytes, piece = found if found is not None else (None, b"")
        head = Chunk(sha256=want.sha256, offset=want.offset, size_bytes=size_bytes)
        payload = join_chunk(head, piece)
        self._budget_bytes -= len(payload)
        self._publish(str(Topic(topic.fleet, topic.device, "content")), payload)

    def _is_accepted(self, topic: Topic) -> bool:
        now_s = self._clock_s()
        asked_s, is_accepted = self._standing.get(topic, (float("-inf"), False))
        if now_s - asked_s > STANDING_S:
            found = devices.find(self._registry, topic.device)
            is_accepted = found is not None and found.standing == "accepted" and found.fleet == topic.fleet
            # Names come from the line: no more of them are remembered than devices may wait.
            if len(self._standing) >= WAITING_DEVICES:
                self._standing.clear()
            self._standing[topic] = (now_s, is_accepted)
        return is_accepted
