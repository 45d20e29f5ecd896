"""The kinds of OpenVINO's layers, from the type that its counters tell; there is no front end with a table of them."""

from __future__ import annotations

_NAMES = {
    "conv": "convolution deconvolution convolutionbackpropdata groupconvolution groupconvolutionbackpropdata "
    "binaryconvolution deformableconvolution",
    "matmul": "fullyconnected matmul",
    "attention": "scaleddotproductattention scaleddotproductattentionwithkvcache",
    "recurrent": "lstmcell lstmsequence grucell grusequence rnncell rnnsequence",
    "norm": "batchnorminference lrn mvn normalizel2 rms",
    "softmax": "softmax logsoftmax",
    "pool": "pooling maxpool avgpool adaptiveavgpool adaptivemaxpool",
    "elementwise": "relu sigmoid tanh gelu swish hswish mish elu prelu clamp exp log sqrt power erf add subtract multiply "
    "divide eltwise negative abs",
    "reduce": "reducemean reducesum reducemax reducemin reduceprod",
    "resize": "interpolate",
    "sort": "topk",
    "gather": "gather gathernd",
    "copy": "concat concatenation split slice stridedslice transpose permute reorder pad tile broadcast convert copy",
    "view": "reshape squeeze unsqueeze",
    "quantize": "fakequantize",
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def openvino_kind(layer_type: str) -> str:
    """The kind; empty for a type that is not known."""
    return KINDS.get(layer_type.lower(), "")
