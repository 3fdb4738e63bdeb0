"""Write ONNX models of one operator each, in the shapes of the benchmark DeepBench.

DeepBench uses these shapes for inference on devices.

pip install onnx
python docs/examples/operator_models.py FOLDER
edgemeter run FOLDER/operators.toml
"""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

# Source: DeepBench, code/kernels/gemm_problems.h and conv_problems.h, inference_device_set. A
# product is m, n, k, where n is the batch. A 1x1 convolution is the side of the image, channels,
# filters and stride.
PRODUCTS = [
    (5124, 700, 2048), (35, 700, 2048), (3072, 1, 1024), (64, 1, 1216), (3072, 1500, 1024),
    (128, 1500, 1280), (3072, 1500, 128),
    (128, 1, 1024), (3072, 1, 128), (176, 1500, 1408), (4224, 1500, 176), (128, 1, 1408),
    (4224, 1, 128),
]  # fmt: skip
CONVOLUTIONS = [
    (112, 64, 64, 1), (56, 64, 256, 1), (56, 256, 64, 1), (56, 256, 128, 2), (28, 128, 512, 1),
    (28, 512, 128, 1), (28, 512, 256, 2),
    (14, 256, 1024, 1), (28, 512, 1024, 2), (14, 1024, 256, 1), (14, 1024, 512, 2),
    (7, 512, 2048, 1), (14, 1024, 2048, 2),
    (7, 2048, 512, 1),
]  # fmt: skip


def write(
    kind: str, first: list[int], second: list[int], output: list[int], folder: Path, stride: int = 1
) -> str:
    """Write a model of one operator with random weights, and return its name."""
    name = f"{kind}_{'x'.join(map(str, first))}_by_{'x'.join(map(str, second))}" + (
        f"_stride_{stride}" if stride > 1 else ""
    )
    weights = np.random.default_rng(0).standard_normal(second).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node(
                kind,
                ["x", "weights"],
                ["y"],
                **({"strides": [stride, stride]} if kind == "Conv" else {}),
            )
        ],
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, first)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(weights, "weights")],
    )
    save(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]),
        folder / f"{name}.onnx",
    )
    return name


def main(folder: Path) -> None:
    """Write all models, and a suite that measures them."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [write("MatMul", [n, k], [k, m], [n, m], folder) for m, n, k in PRODUCTS]
    for side, channels, filters, stride in CONVOLUTIONS:
        size = (side - 1) // stride + 1
        names.append(
            write(
                "Conv",
                [1, channels, side, side],
                [filters, channels, 1, 1],
                [1, filters, size, size],
                folder,
                stride,
            )
        )
    cases = [f'[[case]]\nmodel = "{name}.onnx"\nmode = "rapid"\n' for name in names]
    (folder / "operators.toml").write_text('name = "operators"\n\n' + "\n".join(cases))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
