"""How many variables an operator makes: FBS v1 does not store it.

Workspaces and outputs that are switched off do not count. An operator that is not listed makes one.
"""

from __future__ import annotations

from opcost.frontends.flatbuffer import LONGEST_LIST
from opcost.frontends.megengine.params import Param

_SEVERAL = {
    "Argsort": 2, "CondTake": 2, "NMSKeepMGB": 2, "ROIAlign": 2, "ROIPooling": 2, "DeformablePSROIPooling": 2,
    "Dropout": 2, "ShuffleRNG": 2, "LayerNorm": 3, "GroupNorm": 3, "InstanceNorm": 3, "GeneralNorm": 3, "RNN": 3,
    "LSTMCell": 3, "LSTM": 4, "MultiHeadAttn": 4,
    "LayerNormBackward": 3, "GroupNormBackward": 3, "InstanceNormBackward": 3, "GeneralNormBackward": 3,
    "RNNBackward": 3, "LSTMBackward": 4, "TQTBackward": 2, "LSQBackward": 2, "WhereBackward": 2,
    "BatchNormBackward": 3, "DeformableConvBackwardData": 3, "DeformablePSROIPoolingBackward": 2,
}  # fmt: skip


def output_count(kind: str, inputs: int, tensors: int, param: Param) -> int:
    """The number of variables that an operator of this type makes."""
    fields = param.fields
    match kind:
        case "MultipleDeviceTensorHolder" | "MultipleDeviceTensorWithFormatHolder":
            return tensors
        case "Split":
            return max(inputs - 1, 0)
        case "TopK":
            return 1 if fields.get("mode") == "KTH_ONLY" else 2
        case "SVD":
            return 3 if fields.get("compute_uv") else 1
        case "BatchNorm":  # running statistics only where they are updated
            return 6 if inputs == 5 and fields.get("fwd_mode") == "TRAINING" else 4
        case "CheckNonFinite":
            return inputs + 1
        case "CondExecMark" | "CondExecMarkIfNeed":
            return max(inputs - 1, 1)
        case "CondExecMerge":
            merged = fields.get("nr_output", 1)
            return min(merged, LONGEST_LIST) if isinstance(merged, int) else 1
        case _:
            return _SEVERAL.get(kind, 1)
