"""The desks of the service, by name: a room adds its line here."""

from collections.abc import Mapping
from importlib import import_module

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.desk import Desk, Publish

DESKS: Mapping[str, str] = {
    "campaigns": "edgemeter.provisioning.campaigns.campaign_desk:CampaignDesk",
    "enrolment": "edgemeter.provisioning.identity.enrolment_desk:EnrolmentDesk",
    "jobs": "edgemeter.provisioning.jobs.desk:JobsDesk",
    "content": "edgemeter.provisioning.content.content_desk:ContentDesk",
    "health": "edgemeter.provisioning.health.health_desk:HealthDesk",
    "rescue": "edgemeter.provisioning.rescue.rescue_desk:RescueDesk",
}


def make(folder: FleetFolder, registry: Registry, publish: Publish) -> dict[str, Desk]:
    """Return every desk, ready, by name."""
    made = {}
    for name, where in DESKS.items():
        module, _, kind = where.partition(":")
        made[name] = getattr(import_module(module), kind)(folder, registry, publish)
    return made
