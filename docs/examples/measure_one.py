"""Measure one model on this device and print its figures.

python docs/examples/measure_one.py MODEL [IMAGES ANNOTATIONS]
"""

import sys

import edgemeter


def main(model: str, images: str | None = None, annotations: str | None = None) -> None:
    """Measure for a moment (`rapid`). Use `normal` for a figure that you will quote."""
    record = edgemeter.measure(model, data=images, annotations=annotations, mode="rapid")
    print(
        f"{record.model.name} on {record.environment.board or record.device}: "
        f"{record.verdict.state}"
    )
    for rule in record.verdict.rules:
        print(f"  {rule}")
    latency = record.latency
    if latency.p50_ms is not None:
        print(f"latency p50: {latency.p50_ms:.3f} ms")
    if record.accuracy is None:
        print(f"no accuracy: {record.reasons['accuracy']}")
    else:
        print(
            f"accuracy: {record.accuracy.value:.3f} {record.accuracy.metric} on "
            f"{record.accuracy.images} images"
        )
    if record.energy is None:
        print(f"no energy: {record.reasons['energy']}")
    else:
        print(
            f"energy: {record.energy.gross_mj:.4g} mJ per inference, measured by "
            f"{record.energy.sensor} ({record.energy.scope})"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
