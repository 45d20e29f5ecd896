"""The kind of an operator where a profile tells its name and nothing else: MXNet's and OpenVINO's words."""

from __future__ import annotations

_NAMES = {
    "conv": "convolution deconvolution convolutionbackpropdata groupconvolution groupconvolutionbackpropdata "
    "binaryconvolution deformableconvolution _contrib_deformableconvolution _sg_mkldnn_conv",
    "matmul": "fullyconnected matmul dot batch_dot _linalg_gemm _linalg_gemm2 _npi_matmul _sg_mkldnn_fully_connected "
    "_contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt",
    "attention": "scaleddotproductattention scaleddotproductattentionwithkvcache",
    "recurrent": "rnn lstmcell lstmsequence grucell grusequence rnncell rnnsequence",
    "norm": "batchnorm batchnorminference layernorm groupnorm instancenorm l2normalization lrn mvn normalizel2 rms",
    "softmax": "softmax logsoftmax log_softmax softmaxoutput softmin",
    "pool": "pooling maxpool avgpool adaptiveavgpool adaptivemaxpool _contrib_adaptiveavgpooling2d",
    "elementwise": "activation leakyrelu relu sigmoid tanh gelu swish hswish mish elu prelu clamp clip exp log sqrt power erf "
    "add subtract multiply divide eltwise elemwise_add elemwise_sub elemwise_mul elemwise_div _plus_scalar _minus_scalar "
    "_mul_scalar _div_scalar add_n broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_maximum broadcast_minimum "
    "negative abs square",
    "reduce": "sum mean max min argmax argmin reducemean reducesum reducemax reducemin reduceprod norm",
    "resize": "upsampling interpolate _contrib_bilinearresize2d",
    "sort": "topk sort argsort",
    "embedding": "embedding",
    "gather": "gather gathernd gather_nd take pick",
    "scatter": "scatter_nd",
    "copy": "concat concatenation split slice slicechannel slice_axis stridedslice transpose permute reorder pad tile broadcast "
    "cast convert copy identity _copy _copyto copycpu2gpu copygpu2cpu stack swapaxis",
    "view": "reshape flatten squeeze unsqueeze expand_dims",
    "quantize": "quantize _contrib_quantize_v2 _contrib_dequantize _contrib_requantize fakequantize",
    "random": "dropout",
    "create": "_zeros _ones _full _arange _set_value",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def named_kind(name: str) -> str:
    """The kind, also of an operator's gradient; empty for a name that is not known."""
    return _KINDS.get(name.lower().removeprefix("_backward_"), "")
