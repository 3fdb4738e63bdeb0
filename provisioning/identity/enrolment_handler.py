"""The service's part of enrolment: takes requests from the broker, publishes the answers, and keeps the broker up to date."""

import logging
from datetime import datetime, timezone

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.log_limit import about
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.identity import (
    ENROL,
    EVERY_REQUEST,
    CertificateHeld,
    EnrolmentAnswer,
    answer_topic,
    decode_request,
    encode_identity,
)
from edgemeter.agent.contract.messages import EVERY_RENEW, Topic, parse_topic
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.identity.enrolment import RENEWED_GRACE_NS, Enrolment
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.certificates import decided_requests
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

_NS = 1_000_000_000


class EnrolmentHandler:
    """Answers certificate requests (see `FleetHandler`); inactive where the folder has no authority."""

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:
        self._folder = folder
        self._registry = registry
        self._publish = publish
        self._signing = broker_files.authority(folder) if folder.ca_key.exists() else None
        self._enforcement = Enforcement(folder, registry, self._signing) if self._signing else None
        self.topics: tuple[str, ...] = (EVERY_REQUEST, EVERY_RENEW) if self._signing else ()

    def received(self, message: Message) -> None:
        """Answer one request; an invalid one gets no answer.

        Raises:
            ConfigError: it is invalid.
        """
        now_ns = _now_ns()
        asker = message.topic.rpartition("/")[0]
        try:
            asking = decode_request(message.payload)
            token_id = _token_id(message.topic)
            if isinstance(asking, CertificateHeld):
                if token_id is not None:
                    self._enrolment().held(token_id, asking.held, now_ns)
                elif self._enrolment().uses(parse_topic(message.topic).device, asking.held, now_ns):
                    logger.info(
                        "%s uses certificate %s: its earlier ones end in %d days", asker, asking.held, RENEWED_GRACE_NS // NS_PER_DAY
                    )
                return
            if token_id is not None:
                answer, where = self._enrolment().with_token(token_id, asking, now_ns), answer_topic(token_id)
            else:
                topic = parse_topic(message.topic)
                answer = self._enrolment().with_certificate(topic, asking, now_ns)
                where = str(Topic(topic.fleet, topic.device, "certificate"))
        except ConfigError as error:
            raise ConfigError(f"rejected request from {asker}: {error}") from error
        _log_answer(asker, answer)
        self._publish(where, encode_identity(answer))

    def poll(self, now_ns: int) -> None:
        """Answer requests accepted meanwhile, and bring the broker up to date with the registry."""
        if self._enforcement is None:
            return
        for waiting in decided_requests(self._registry):
            answer = self._enrolment().settle(waiting, now_ns)
            _log_answer(waiting.topic, answer)
            self._publish(waiting.topic, encode_identity(answer))
        self._enforcement.enforce(datetime.fromtimestamp(now_ns / _NS, timezone.utc))

    def close(self) -> None:
        """Hold nothing."""

    def _enrolment(self) -> Enrolment:
        if self._signing is None:
            raise ConfigError(f"the fleet in {str(self._folder.path)!r} has no authority: `edgemeter fleet init` makes one")
        # Read each time: people edit the inventory while the service runs.
        return Enrolment(self._registry, self._signing, fleet_file.read(self._folder.fleet_file))


def _token_id(topic: str) -> str | None:
    """Return the token id in an enrolment topic, None for the topic of a device."""
    return topic.split("/")[2] if topic.startswith(f"{ENROL}/") else None


def _log_answer(asker: str, answer: EnrolmentAnswer) -> None:
    if answer.state == "accepted":
        logger.info("device %r has certificate %s", answer.device, answer.number)
    else:
        logger.warning("%s: %s: %s", asker, answer.state, answer.reason, extra=about(asker))


def _now_ns() -> int:
    return int(datetime.now(timezone.utc).timestamp() * _NS)
