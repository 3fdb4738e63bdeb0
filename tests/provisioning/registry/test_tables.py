"""The registry: what is written is read again, by the tables of devices, jobs and certificates."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.orders import Doctor, Logs
from edgemeter.provisioning.jobs import waves
from edgemeter.provisioning.registry import certificates, devices, jobs
from edgemeter.provisioning.registry.certificates import EnrolmentRequest
from edgemeter.provisioning.registry.devices import Device, DeviceReport
from edgemeter.provisioning.registry.jobs import NewJob, Target
from edgemeter.provisioning.registry.registry import Registry

HEALTH = Health(device="pi-1", fleet="lab", session=1, told_ns=1, boot_id="a", agent="1")
PI = Device("pi-1", "lab", "1000", "pi5", ("coral",), "accepted", 6)


def test_a_device_comes_back_as_it_was_kept(registry):
    """A device is found by name and serial; a board with another name takes its serial along."""
    with registry.transaction() as statements:
        devices.put(statements, PI)
    assert devices.read(registry) == [PI]
    assert devices.find(registry, "pi-1") == devices.find_by_serial(registry, "1000") == PI
    renamed = Device("pi-2", "lab", "1000", None, (), "accepted", 7)
    with registry.transaction() as statements:
        devices.put(statements, renamed)
    assert devices.find_by_serial(registry, "1000") == renamed
    assert devices.find(registry, "pi-1").serial is None


def test_a_job_is_found_by_how_its_name_begins(registry):
    """A job is found by the beginning of its name, if that is unique.

    Changes are read by the job's serial number; a cancelled job has ended.
    """
    with registry.transaction() as statements:
        job = jobs.add(
            statements,
            NewJob((Doctor(),), "doctor", 300.0),
            [Target("pi-1", "lab"), Target("pi-2", "lab", 1, exclusive="rack")],
            1,
        )
        jobs.add(statements, NewJob((Logs(),), "logs", 300.0), [Target("pi-3", "lab")], 2)
    assert jobs.find(registry, job[:9]).job == job
    assert jobs.find(registry, job).works == (Doctor(),)
    first, second = jobs.executions_of_job(registry, job)
    assert (first.state, first.exclusive, second.state, second.exclusive) == (
        "queued",
        None,
        "held",
        "rack",
    )
    for unclear in ("", "%", "nothing", "*"):
        with pytest.raises(ConfigError):
            jobs.find(registry, unclear)
    before = jobs.last_serial(registry)
    waves.change_job(registry, job, "cancel", "pi-2", 5)
    assert [
        execution.device
        for execution in jobs.select_executions(registry, "WHERE serial > ?", before)
    ] == ["pi-2"]
    assert jobs.count_states(registry, job) == {(0, "queued"): 1, (1, "cancelled"): 1}
    assert [job.title for job in jobs.select_jobs(registry, "ORDER BY made_ns DESC LIMIT 1")] == [
        "logs"
    ]


def test_the_oldest_waiting_requests_are_dropped(registry, monkeypatch):
    """Only the newest undecided requests stay, so a board that asks for ever fills nothing.

    A request that was decided stays.
    """
    monkeypatch.setattr(certificates, "KEPT_UNDECIDED", 3)
    with registry.transaction() as statements:
        for number in range(6):
            row = EnrolmentRequest(
                f"r{number}", None, "pi", "lab", f"{number}", "emmc", None, "k", "why", number
            )
            certificates.put_request(statements, row)
            if number == 0:
                certificates.decide_request(statements, "r0", "accepted", "pi-9")
    assert [request.request for request in certificates.undecided_requests(registry)] == [
        "r3",
        "r4",
        "r5",
    ]
    assert certificates.find_request(registry, "r0").name == "pi-9"


def test_what_fails_leaves_nothing_and_a_reader_writes_nothing(registry):
    """A failed transaction leaves nothing, and a reader cannot write."""

    def fail():
        with registry.transaction() as statements:
            devices.put(statements, PI)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert devices.read(registry) == []
    with registry.transaction() as statements:
        devices.put_reports(statements, [DeviceReport("pi-1", "lab", HEALTH, 1)])
    with Registry(registry.path, "read") as reader:
        assert devices.read_presence(reader)["pi-1"].health.agent == "1"
