"""Run PyTorch's own tests of recurrent modules twice, on `torch.nn` and on `throughtime.nn`, and compare the outcomes.

    python tools/pytorch_tests.py CHECKOUT [FILE ...] [--json RESULTS]

CHECKOUT is a checkout of PyTorch at the version that is installed; FILE is a path below its `test/`, by default those
of `FILES`. Of each file run the tests whose name or source speaks of LSTM, GRU or RNN; of these count the ones that
have made a `torch.nn.LSTM`, `GRU` or `RNN`, whatever they call it. Beside pytest the tests of PyTorch need
`expecttest`, those of ONNX `onnx`, `onnxruntime`, `onnxscript`, `parameterized` and `torchvision`.
`pytorch_substitution.py` is the plugin that puts our modules in the place of torch's.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

FILES = (
    "test_nn.py",
    "test_modules.py",
    "test_expanded_weights.py",
    "test_overrides.py",
    "test_fx.py",
    "test_jit.py",
    "test_autograd.py",
    "test_autocast.py",
    "test_serialization.py",
    "test_mkldnn.py",
    "nn/test_load_state_dict.py",
    "nn/test_pruning.py",
    "export/test_export.py",
    "dynamo/test_repros.py",
    "dynamo/test_aot_autograd.py",
    "onnx/test_pytorch_onnx_onnxruntime.py",
    "onnx/test_utility_funs.py",
    "quantization/core/test_quantized_op.py",
    "quantization/core/test_quantized_module.py",
    "quantization/eager/test_quantize_eager_ptq.py",
    "quantization/eager/test_numeric_suite_eager.py",
    "quantization/fx/test_quantize_fx.py",
    "quantization/fx/test_numeric_suite_fx.py",
    "quantization/jit/test_deprecated_jit_quant.py",
    "ao/sparsity/test_structured_sparsifier.py",
)
_RECURRENT = re.compile(r"LSTM|GRU|RNN")
_TOOLS = Path(__file__).resolve().parent


def main() -> None:
    """Run the files that are asked for, and print what came out of each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--json", type=Path, help="where the outcome of every test goes")
    parser.add_argument("--logs", type=Path, help="a folder for what pytest prints")
    options = parser.parse_args()
    results, folder = {}, options.checkout.resolve() / "test"
    for file in options.files:
        theirs, ours = (_outcomes(folder, file, options.logs, substitute=flag) for flag in (False, True))
        results[file] = {test: [theirs.get(test), ours.get(test)] for test in sorted(theirs | ours)}
        print(_summary(file, results[file]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


def _summary(file: str, outcomes: dict[str, list[str | None]]) -> str:
    """One line on a file, and one on every test that ends differently with our modules."""
    counts = Counter(tuple(pair) for pair in outcomes.values())
    lines = [f"{file}: {counts['passed', 'passed']} pass with both"]
    lines += [f"    {theirs} -> {ours}: {test}" for test, (theirs, ours) in outcomes.items() if theirs != ours]
    return "\n".join(lines)


def _outcomes(folder: Path, file: str, logs: Path | None, *, substitute: bool) -> dict[str, str]:
    """The outcome of every test of a file that makes a recurrent module."""
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "outcomes.json"
        variables = {"THROUGHTIME_SUBSTITUTE": str(int(substitute)), "THROUGHTIME_OUTCOMES": str(results)}
        search = os.pathsep.join([str(_TOOLS), str(folder), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "pytorch_substitution", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, f"--rootdir={folder}", "--noconftest", "-k", _selection(folder / file), file]
        run = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **variables, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            check=False,
        )
        if logs is not None:
            (logs / f"{file.replace('/', '-')}.{'ours' if substitute else 'torch'}.log").write_text(run.stdout)
        # Tests that fail and files without a test are outcomes; a file that cannot be collected is none.
        if run.returncode not in (0, 1, 5) or not results.exists():
            raise RuntimeError(f"{file} did not run:\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}")
        outcomes: dict[str, str] = json.loads(results.read_text())
        return outcomes


def _selection(path: Path) -> str:
    """What pytest takes by `-k`: tests whose name or source speaks of recurrent modules."""
    text = path.read_text()
    named = {"LSTM", "GRU", "RNN"}
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if function.name.startswith("test_") and _RECURRENT.search(ast.get_source_segment(text, function) or ""):
            named.add(function.name)
    return " or ".join(sorted(named))


if __name__ == "__main__":
    main()
