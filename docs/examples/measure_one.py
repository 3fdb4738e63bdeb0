"""Measure one model on this device, and print what it costs.

python docs/examples/measure_one.py MODEL [IMAGES ANNOTATIONS]
"""

import sys

import edgemeter


def main(model: str, images: str | None = None, annotations: str | None = None) -> None:
    """Measure for a moment (`rapid`); take `normal` for a figure that you will quote."""
    record = edgemeter.measure(model, data=images, annotations=annotations, mode="rapid")
    print(f"{record.model.name} on {record.environment.board or record.device}: {record.verdict.state}")
    for reason in record.verdict.reasons:
        print(f"  {reason}")
    latency = record.latency
    if latency.p50_ms is not None:
        bounds = (
            f"{latency.p50_low_ms:.3f} to {latency.p50_high_ms:.3f}"
            if latency.p50_low_ms
            else "no bounds: its queries depend on each other"
        )
        print(f"latency p50: {latency.p50_ms:.3f} ms ({bounds})")
    if record.accuracy is None:
        print(f"no accuracy: {record.accuracy_reason}")
    else:
        print(f"accuracy: {record.accuracy.value:.3f} {record.accuracy.metric} on {record.accuracy.images} images")
    if record.energy is None:
        print(f"no energy: {record.energy_reason}")
    else:
        print(f"energy: {record.energy.gross_mj:.4g} mJ per inference, seen by {record.energy.sensor} ({record.energy.scope})")


if __name__ == "__main__":
    main(*sys.argv[1:])
