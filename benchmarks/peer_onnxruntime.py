"""ONNX Runtime as a peer: one LSTM, GRU or RNN node, with the weights of torch's module.

Runs inside the environment of the peer; see `peer_loop.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from peer_loop import Arrays, Loaded, serve

# Where ONNX has its gates in torch's weights: i o f c of i f g o, and z r h of r z n.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
# torch resets after the product, as ONNX does if it is told so.
ATTRIBUTES: dict[str, dict[str, Any]] = {"LSTM": {}, "GRU": {"linear_before_reset": 1}, "RNN": {}}


def reordered(kind: str, weight: Any) -> Any:
    gates = np.split(weight, len(GATES[kind]))
    return np.concatenate([gates[gate] for gate in GATES[kind]])[None]


def model(kind: str, arrays: Arrays) -> onnx.ModelProto:
    """Inputs [T, B, I] to outputs [T, 1, B, H], the only layout that its kernels know."""
    weights = {name: reordered(kind, arrays[name]) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    biases = np.concatenate([weights["bias_ih"], weights["bias_hh"]], 1)
    constants = {"W": weights["weight_ih"], "R": weights["weight_hh"], "B": biases}
    T, B, I = arrays["inputs"].shape  # noqa: E741 (the letter of the dimension)
    H = arrays["weight_hh"].shape[1]
    node = helper.make_node(kind, ["X", "W", "R", "B"], ["Y"], hidden_size=H, **ATTRIBUTES[kind])
    graph = helper.make_graph(
        [node],
        kind,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [T, B, I])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [T, 1, B, H])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def load(case: dict[str, Any], arrays: Arrays) -> Loaded:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case["threads"]
    options.inter_op_num_threads = 1
    content = model(case["kind"], arrays).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feed = {"X": np.ascontiguousarray(arrays["inputs"])}

    def run() -> Any:
        return session.run(None, feed)

    return Loaded(run, {"outputs": run()[0][:, 0]})


if __name__ == "__main__":
    serve(onnxruntime.__version__, load)
