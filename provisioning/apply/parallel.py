"""Many devices at a time, up to a limit; one that fails does not stop the others."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from edgemeter.provisioning.apply import applying
from edgemeter.provisioning.apply.applying import Settings, Told, Wish
from edgemeter.provisioning.apply.outcome import Outcome


def apply(wishes: Sequence[Wish], settings: Settings, jobs: int, told: Told, ended: Callable[[Outcome], None]) -> list[Outcome]:
    """Return what came of each device, in the order of `wishes`; `told` and `ended` are called from several threads."""

    def one(wish: Wish) -> Outcome:
        outcome = applying.apply(wish, settings, told)
        ended(outcome)
        return outcome

    pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="apply")
    try:
        return list(pool.map(one, wishes))
    finally:
        # Interrupted: those that have not begun do not begin.
        pool.shutdown(wait=True, cancel_futures=True)
