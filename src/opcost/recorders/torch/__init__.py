"""PyTorch on the CPU and on CUDA. Importing this package does not import torch."""

from typing import Any

from opcost.core.profile import Profile
from opcost.core.report import Report
from opcost.frontends.torch import FRONTEND
from opcost.recorders.registry import ProfileOptions, Recorder


class TorchRecorder(Recorder):
    """Whatever of PyTorch can be counted and has its weights."""

    name = "torch"
    framework = "torch"
    understands = FRONTEND.understands
    wants_report = True

    def owns(self, obj: object) -> bool:
        return FRONTEND.owns(obj)

    def record(self, source: Any, options: ProfileOptions, report: Report | None) -> Profile:
        from opcost.recorders.torch.record import record

        return record(source, options, report)


RECORDER: Recorder = TorchRecorder()
