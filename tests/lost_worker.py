"""A process of pytest-xdist that crashes or hangs takes only its file with it.

No test runs twice.
"""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FileScheduling(LoadFileScheduling):
    """A schedule as `--dist loadfile`, which would start with the crashed test again."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        # The tests of the last crashed file after the one that crashed.
        self.not_run: list[str] = []

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which a process ended, if any; others get the other files it had."""
        files = self.assigned_work[node]
        for name, tests in files.items():
            if unfinished := [test for test, is_finished in tests.items() if not is_finished]:
                del files[name]
                super().remove_node(node)
                crashed, *self.not_run = unfinished
                return crashed
        return super().remove_node(node)
