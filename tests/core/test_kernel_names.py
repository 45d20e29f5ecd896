"""Long names of kernels, as profilers write them, and what a narrow table shows of them."""

from __future__ import annotations

import pytest

from opcost.core.names import is_collective, short_kernel_name
from opcost.views.view import cut

_ELEMENTWISE = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
_LAMBDA = "{lambda()#2}::operator()() const::{lambda(float)#1}"
_IF = "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*> >(int)",
         "CUDAFunctor_add vectorized_elementwise_kernel"),
        (_ELEMENTWISE + "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >(int)",
         "MulFunctor elementwise_kernel"),
        (_ELEMENTWISE + f"at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{_LAMBDA}>(int)",
         "direct_copy_kernel_cuda elementwise_kernel"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(int)",
         "MeanOps reduce_kernel"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>(float*)", "CatArrayBatchedCopy"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>(Params)",
         "cutlass_80_simt_sgemm_256x128_8x4_tn_align1"),
        (_IF + "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(long)", "fused_add_rms_norm_kernel"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclKernel_AllReduce_RING_LL_Sum_float"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN_LDSB1", "Cijk_Alik_Bljk MT128x256x32"),
        ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassE", "Rmsnorm2dFwd"),
        ("(graph) void paged_attention_kernel<float, 128>(int)", "(graph) paged_attention_kernel"),
        # Nothing to leave out: names that are no functions, and the table's own words.
        ("triton_poi_fused_addmm_gelu_view_19", "triton_poi_fused_addmm_gelu_view_19"),
        ("(unattributed: launch not in the trace)", "(unattributed: launch not in the trace)"),
        ("aten::convolution_backward", "aten::convolution_backward"),
    ],
)  # fmt: skip
def test_of_a_long_name_what_it_computes_remains(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


def test_a_name_that_has_room_is_not_touched() -> None:
    name = "void copy<float>(float*)"
    assert cut(name, len(name), "name") == name
    assert cut(name, len(name) - 1, "name") == "copy"
    assert cut(name, 3, "name") == "co…"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(unsigned long)", True),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(int)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", True),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)", False),
    ],
)
def test_collectives_of_other_libraries_are_collectives(name: str, is_one: bool) -> None:
    assert is_collective(name) is is_one
