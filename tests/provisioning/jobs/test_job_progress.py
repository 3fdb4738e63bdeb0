"""Facts about the progress of jobs that the fleet's service publishes for the page."""

from edgemeter.agent.contract.messages import LARGEST_REPORT_BYTES, decode_job_progress
from edgemeter.provisioning.jobs import job_progress
from edgemeter.provisioning.jobs.job_progress import JobProgressHandler
from tests.fixtures.job_bench import Bench, S


class World(Bench):
    """A bench whose jobs' progress is published as a broker retains it.

    It keeps the last message of each topic, and none that is empty.
    """

    def __init__(self, path):
        self.retained = {}
        super().__init__(path)

    def start(self):
        super().start()
        self.reports = JobProgressHandler(self.folder, self.registry, self.publish)
        self.count = 0

    def publish(self, topic, payload, *, lasting="passing"):
        assert lasting == "retained"
        self.count += 1
        self.retained[topic] = payload

    def published(self, seconds=5.0):
        """Let time pass; return the retained progress by name, and how many messages that took."""
        self.poll()
        self.now_ns += int(seconds * S)
        self.count = 0
        self.reports.poll(self.now_ns)
        present = {
            topic.split("/")[2]: decode_job_progress(payload)
            for topic, payload in self.retained.items()
            if payload
        }
        return present, self.count


def test_a_job_is_published_with_what_its_devices_do_until_a_day_after_its_end(bench):
    """A job's progress is published until a day after its end, and nothing is published twice.

    Executions in flight come first, then failed ones with their reason. A service that was killed
    meanwhile continues.
    """
    job = bench.add("a", "b", "c")
    bench.online("a", "b")
    orders = dict(bench.poll())
    bench.report("a", orders["a"], "running", 2)
    bench.report("b", orders["b"], "failed", 2, reason="no such\nruntime")
    bench.poll()
    bench.do("a", "run 2 of 4", 0.25)
    present, count = bench.published()
    report = present[job]
    counts = {"done": 0, "failed": 1, "running": 1, "waiting": 1, "wave": 1, "waves": 1, "total": 3}
    assert {name: getattr(report, name) for name in counts} == counts
    assert (report.title, report.state) == ("t", "running")
    assert [
        (line.device, line.state, line.done_ratio, line.note) for line in report.executions
    ] == [
        ("a", "running", 0.25, "run 2 of 4"),
        ("b", "failed", None, "no such runtime"),
    ]
    assert count == 1
    assert bench.published()[1] == 0
    bench.report("a", orders["a"], "done", 3)
    bench.online("c")
    ((_, order),) = [(device, order) for device, order in bench.poll() if device == "c"]
    bench.report("c", order, "done", 2)
    bench.published()
    assert bench.published()[0][job].state == "done"
    assert bench.published()[1] == 0
    bench.kill()
    assert bench.published()[0][job].state == "done"
    assert bench.published(86_400)[0] == {}
    assert bench.published()[1] == 0


def test_a_job_on_many_devices_is_a_message_that_a_collector_takes(bench):
    """The message names at most fifty devices, with notes that are cut; the counts are of all."""
    job = bench.add(*(f"device-{number:05d}-{'x' * 40}" for number in range(60)))
    with bench.registry.transaction() as connection:
        connection.execute(
            "UPDATE executions SET state = 'failed', ended_ns = 1, reason = ?", ("\u2603" * 2000,)
        )
    report = bench.published(0.0)[0][job]
    assert (report.failed, len(report.executions)) == (60, job_progress.MOST_EXECUTIONS)
    assert max(map(len, bench.retained.values())) < LARGEST_REPORT_BYTES
