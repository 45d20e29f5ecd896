"""What operators are called: by name in FBS v2, by the hash of a name in FBS v1.

A class name may end in a version and in `Forward`; both go, so that one rule serves all files. MegEngine hashes the name
with its version and a closing NUL byte, the oldest files without either.
"""

from __future__ import annotations

import re
from functools import cache

from opcost.frontends.megengine.xxhash import xxh64

_SEED = 20160701
_VERSIONS = ("", *(f"V{number}" for number in range(10)))
_SUFFIX = re.compile(r"V\d$")

_REGISTERED = """
    AdaptivePoolingV1 AdaptivePoolingBackwardV1 AddUpdate AffineInt Alloc Argmax Argmin Argsort ArgsortBackward AssertEqual
    AtlasRuntimeOpr AxisAddRemove BatchConvBiasForwardV1 BatchNormV1 BatchNormBackwardV1 BatchedIncrMeshIndexing
    BatchedMatrixMulV2 BatchedMeshIndexing BatchedSetMeshIndexing BetaRNG Broadcast CambriconRuntimeOpr CheckNonFinite
    Concat CondExecMark CondExecMarkIfNeed CondExecMerge CondExecPred CondExecPredLogical CondTake ConvBiasForwardV4
    ConvolutionV2 ConvolutionBackwardDataV2 ConvolutionBackwardFilterV2 Convolution3D Convolution3DBackwardData
    Convolution3DBackwardFilter Copy CorrelationForward CorrelationBackwardData1 CorrelationBackwardData2 CounterProvider
    Cross CumsumV1 CvtColor DctChannelSelectV1 DeformableConvForwardV1 DeformableConvBackwardDataV1
    DeformableConvBackwardFilterV1 DeformablePSROIPoolingForward DeformablePSROIPoolingBackward Diag DiagBackward
    Dimshuffle Dot Dropout DropoutBackward Elemwise ElemwiseMultiType ExponentialRNG ExternCOprRunner Eye FakeQuant
    FakeQuantBackward Flip GammaRNG GaussianBlur GaussianRNGV1 GeneralNorm GeneralNormBackward GetVarShapeV1
    GroupLocalV2 GroupLocalBackwardDataV2 GroupLocalBackwardFilterV2 GroupNorm GroupNormBackward Host2DeviceCopy Identity
    Images2Neibs Images2NeibsBackward ImmutableTensor IncrMeshIndexing IncrSubtensor IndexingIncrMultiAxisVec
    IndexingMultiAxisVec IndexingOneHot IndexingRemap IndexingRemapBackward IndexingSetMultiAxisVec IndexingSetOneHot
    InputMaker InstanceNorm InstanceNormBackward LRN LRNBackward LSQ LSQBackward LSTMForward LSTMBackward LSTMCellForward
    LayerNorm LayerNormBackward Linspace LocalV2 LocalBackwardDataV2 LocalBackwardFilterV2 LocalShareForwardV1
    LocalShareBackwardDataV1 LocalShareBackwardFilterV1 Loop LoopGrad MagicMindRuntimeOpr MarkDynamicVar
    MarkNoBroadcastElemwise MaskConvolutionV2 MaskPropagate MaskedFill MatrixInverse MatrixMulV2 MeshIndexing
    MultiHeadAttn MultiHeadAttnBackward MultinomialRNG MultipleDeviceTensorHolder MultipleDeviceTensorWithFormatHolder
    NMSKeepMGB NonZero NvOf Padding PaddingBackward PermutationRNG PersistentOutputStorage PoissonRNG PoolingV1
    PoolingBackwardV1 PowC RNNForward RNNBackward RNNCellForward ROIAlignV1 ROIAlignBackwardV1 ROIPooling
    ROIPoolingBackward ReduceV2 RegionRestrictedConvolution RegionRestrictedConvolutionBackwardData
    RegionRestrictedConvolutionBackwardFilter RelayoutFormatV1 RemapV1 RemapBackwardDataV1 RemapBackwardMatV1 ReshapeV1
    ResizeV2 ResizeBackward Resize3D Rotate SVD SetMeshIndexing SetSubtensor SharedDeviceTensor
    SharedDeviceTensorWithFormat ShuffleRNG ShuffleRNGBackward Sleep SlidingWindowTranspose
    SlidingWindowTransposeBackward Softmax SoftmaxBackward Split Subtensor TQT TQTBackward TensorRTRuntimeOpr TopK
    TypeCvtV2 UniformRNGV1 VirtualDep VirtualGrad VolatileSharedDeviceTensor WarpAffineV2 WarpPerspectiveV2
    WarpPerspectiveBackwardDataV2 WarpPerspectiveBackwardMatV2 Where WhereBackward
""".split()
"""Class names under which MegEngine 1.13 stores operators."""


def plain(name: str) -> str:
    """An operator's name without version and without `Forward`."""
    return _SUFFIX.sub("", name).removesuffix("Forward")


def by_hash(number: int, *, versioned: bool) -> str:
    """The name behind an operator's id; an id that nobody knows stands for itself."""
    if not versioned:
        return _unversioned().get(number) or f"id{number:x}"
    return _current().get(number) or _other_versions().get(number) or f"id{number:x}"


@cache
def _current() -> dict[int, str]:
    return {xxh64(name.encode() + b"\0", _SEED): plain(name) for name in _REGISTERED}


@cache
def _other_versions() -> dict[int, str]:
    """The same operators as earlier or later versions of MegEngine would store them."""
    bare = {_SUFFIX.sub("", name) for name in _REGISTERED}
    return {xxh64(f"{name}{version}\0".encode(), _SEED): plain(name) for name in bare for version in _VERSIONS}


@cache
def _unversioned() -> dict[int, str]:
    bare = {_SUFFIX.sub("", name) for name in _REGISTERED}
    return {xxh64(name.encode(), _SEED): plain(name) for name in bare}
