"""Write ONNX files with other tools than hookcli, for ``tools/blame.py``.

The name of a kind of file has an exporter, and then what ONNX Runtime does to the exported file:
``old-static`` is a statically quantized file of the older exporter.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

EXPORTERS = {"new": True, "old": False}
LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
QUANTIZERS = ("dynamic", "static")
KINDS = ("old", "new-basic", "new-extended", "new-dynamic", "new-static")


def write_file(kind: str, model: nn.Module, pixels: Tensor, folder: Path) -> Path:
    exporter, _, tool = kind.partition("-")
    file, changed = folder / "exported.onnx", folder / "changed.onnx"
    logging.getLogger().setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (pixels,), file, dynamo=EXPORTERS[exporter], verbose=False)
        if tool in LEVELS:
            _optimize(file, changed, LEVELS[tool])
        elif tool in QUANTIZERS:
            _quantize(file, changed, None if tool == "dynamic" else pixels)
    return changed if tool else file


def _optimize(file: Path, changed: Path, level: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(changed)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _quantize(file: Path, changed: Path, pixels: Tensor | None) -> None:
    """Quantize with default settings; statically if there are ``pixels`` for the calibration."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

    if pixels is None:
        quantize_dynamic(file, changed)
        return
    name = onnx.load(file, load_external_data=False).graph.input[0].name

    left = [{name: pixels.numpy()}]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return left.pop() if left else None

    quantize_static(file, changed, Reader())
