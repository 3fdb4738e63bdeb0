"""The collection of content: what an open job or a release names is kept."""

import time

from edgemeter.agent.contract.orders import Doctor, Measure, Update
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import NewJob, Target
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.content_store import (
    COLLECT_NS,
    YOUNG_NS,
    ContentCollector,
    ContentStore,
)


def test_what_an_open_job_or_a_release_names_is_kept(tmp_path):
    """Contents that only ended jobs name are removed.

    Young ones are not, and none is before the hour.
    """
    folder = FleetFolder(tmp_path)
    store = ContentStore(folder.content)
    referenced, gone = {}, {}
    for number, group in enumerate((referenced, referenced, referenced, referenced, gone, gone)):
        put = store.put_bytes(b"content %d" % number, "x")
        group[put.sha256] = put
    (suite, model, repeated, released), (ended, forgotten) = referenced.values(), gone.values()
    works = (
        (Measure(suite=suite, models=(model,)), "queued"),
        (Measure(suite=repeated, every_s=3600), "repeating"),
        (Update(version="1.0", bundle=ended), "done"),
        (Doctor(), "queued"),
    )
    with Registry(folder.registry) as registry:
        with registry.transaction() as connection:
            devices.put(connection, Device("pi-1", "lab", None, None, (), "accepted", 0))
            for work, state in works:
                job = jobs.add(connection, NewJob((work,), "t", 60), [Target("pi-1", "lab")], 1)
                connection.execute(
                    "UPDATE executions SET state = ?, ended_ns = ? WHERE job = ?",
                    (state, 1 if state == "done" else None, job),
                )
            release = (released.sha256, 1, "x", "1.0", "pi5", "aarch64", "3.11", "2.36", 1, 1)
            connection.execute(
                "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", release
            )
        collector = ContentCollector(folder, registry, lambda *_: None)
        collector.poll(time.time_ns())
        assert store.path(forgotten.sha256)
        later_ns = time.time_ns() + 2 * YOUNG_NS
        collector.poll(later_ns)
        assert all(store.path(sha256) for sha256 in referenced)
        assert not any(store.path(sha256) for sha256 in gone)
        late = store.put_bytes(b"late", "x").sha256
        for pause_ns, is_kept in ((COLLECT_NS - 1, True), (COLLECT_NS, False)):
            collector.poll(later_ns + pause_ns)
            assert (store.path(late) is not None) == is_kept
