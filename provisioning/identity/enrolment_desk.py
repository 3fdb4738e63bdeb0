"""The enrolment desk of the fleet's service: answers who asks for a certificate, and keeps the broker as the registry has it."""

import logging
from datetime import datetime, timezone

from edgemeter.agent.delivery import topics
from edgemeter.agent.delivery.log_limit import about
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.identity import messages
from edgemeter.agent.identity.messages import Answer, Held
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.identity import broker_files, requests
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.identity.enrolment import Enrolment
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.desk import Publish

logger = logging.getLogger(__name__)

_NS = 1_000_000_000


class EnrolmentDesk:
    """A desk (see `Desk`); it stays closed where the folder holds no authority: such a fleet's devices have no certificates of ours."""

    def __init__(self, folder: FleetFolder, registry: Registry, publish: Publish) -> None:
        self._folder = folder
        self._registry = registry
        self._publish = publish
        self._signing = broker_files.authority(folder) if folder.ca_key.exists() else None
        self._enforcement = Enforcement(folder, registry, self._signing) if self._signing else None
        self.topics: tuple[str, ...] = (messages.EVERY_REQUEST, topics.EVERY_RENEW) if self._signing else ()

    def received(self, message: Message) -> None:
        """Answer one request; what is none is refused without an answer.

        Raises:
            ConfigError: it is no request of ours.
        """
        now_ns = _now_ns()
        asker = message.topic.rpartition("/")[0]
        try:
            asking = messages.decode_asking(message.payload)
            claim = _claim(message.topic)
            if isinstance(asking, Held):
                if claim is not None:
                    self._enrolment().held(claim, asking.held, now_ns)
                return
            if claim is not None:
                answer, where = self._enrolment().with_token(claim, asking, now_ns), messages.answer_topic(claim)
            else:
                topic = topics.parse(message.topic)
                answer = self._enrolment().with_certificate(topic, asking, now_ns)
                where = str(topics.Topic(topic.fleet, topic.device, "certificate"))
        except ConfigError as error:
            line = f"refused what came from {asker}: {error}"
            raise ConfigError(line) from error
        _tell(asker, answer)
        self._publish(where, messages.encode(answer))

    def look(self, now_ns: int) -> None:
        """Answer what somebody accepted meanwhile, and make the broker's files say what the registry says."""
        if self._enforcement is None:
            return
        for waiting in requests.decided(self._registry):
            answer = self._enrolment().settle(waiting, now_ns)
            _tell(waiting.topic, answer)
            self._publish(waiting.topic, messages.encode(answer))
        self._enforcement.enforce(datetime.fromtimestamp(now_ns / _NS, timezone.utc))

    def close(self) -> None:
        """Give back nothing: the registry is the service's."""

    def _enrolment(self) -> Enrolment:
        if self._signing is None:
            message = f"the fleet in {str(self._folder.path)!r} has no authority: `edgemeter fleet init` makes one"
            raise ConfigError(message)
        # Read each time: people edit the inventory while the service runs.
        return Enrolment(self._registry, self._signing, fleet_file.read(self._folder.fleet_file))


def _claim(topic: str) -> str | None:
    """Return the claim of an enrolment's topic, None for a topic of a device."""
    return topic.split("/")[2] if topic.startswith(f"{messages.ENROL}/") else None


def _tell(asker: str, answer: Answer) -> None:
    if answer.state == "accepted":
        logger.info("device %r has certificate %s", answer.device, answer.number)
    else:
        logger.warning("%s: %s: %s", asker, answer.state, answer.reason, extra=about(asker))


def _now_ns() -> int:
    return int(datetime.now(timezone.utc).timestamp() * _NS)
