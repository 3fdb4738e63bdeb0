"""What cases are called among others: as people call them, and where two would be called alike also by what tells them apart."""

from collections.abc import Callable, Iterable

from edgemeter.collector.compare.cases import CaseKey


def named(key: CaseKey) -> str:
    """Return a case as people call it: model, precision, runtime and device."""
    return f"{key.model} {key.precision} on {key.runtime}, {key.device}"


def names_of(keys: Iterable[CaseKey], called: Callable[[CaseKey], str] = named) -> dict[CaseKey, str]:
    """Return a name for each case, no two alike: `yolov8n fp32 on onnx, pi-1, 4 threads` where there is one of 1 thread too."""
    grouped: dict[str, list[CaseKey]] = {}
    for key in dict.fromkeys(keys):
        grouped.setdefault(called(key), []).append(key)
    return {key: ", ".join([name, *_apart(key, alike)]) for name, alike in grouped.items() for key in alike}


def _apart(key: CaseKey, alike: list[CaseKey]) -> list[str]:
    """Return the first parts that tell a case from those that are called alike, and no more than it takes."""
    parts: list[str] = []
    left = [other for other in alike if other != key]
    for part in _PARTS:
        apart = [other for other in left if part(other) != part(key)]
        if apart:
            parts.append(part(key))
            left = [other for other in left if other not in apart]
    return parts


_PARTS: tuple[Callable[[CaseKey], str], ...] = (
    lambda key: f"{key.threads} thread{'s' * (key.threads != 1)}",
    lambda key: key.backend,
    lambda key: f"batch {key.batch}",
    lambda key: key.power_mode or "no power mode",
    lambda key: key.scenario,
    lambda key: f"{key.samples_per_query} samples a query",
    lambda key: "no rate" if key.target_per_s is None else f"{key.target_per_s:g} a second",
    lambda key: key.role,
    lambda key: f"fleet {key.fleet}",
    lambda key: f"{key.runtime_package} {key.runtime_version}",
    lambda key: f"model {key.model_sha256[:6]}",
    lambda key: f"data {key.dataset_sha256[:6]}",
    lambda key: "input unknown" if key.input_values is None else f"{key.input_values} values",
    lambda key: key.provenance,
    lambda key: key.task,
)
