"""Ordinary Python on tensors whose content is known: as with a real tensor, and without any data of the model."""

from __future__ import annotations

import copy
import ctypes
import io
import math
import pickle
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opcost
from opcost.errors import DataDependent
from opcost.frontends.zoo import declare_torchvision_operators

B, D = 4, 6
LAYER = B * D * D
N = torch.tensor([3, 1, 2])
"""Known numbers; each question below is to be answered by 3."""


def saved(n: Tensor) -> Tensor:
    buffer = io.BytesIO()
    torch.save(n, buffer)
    buffer.seek(0)
    return torch.load(buffer)


QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "int": lambda n: int(n.max()),
    "index": lambda n: len(range(n.max())),
    "round": lambda n: round(n.float().mean().item()) + 1,
    "math": lambda n: math.ceil(n.float().mean() + 0.5),
    "format": lambda n: int(f"{n.max()}"),
    "format with a specification": lambda n: int(f"{n.max():>5d}"),
    "format of a float": lambda n: float(f"{n.float().mean():.2f}") + 1,
    "format by name": lambda n: int(f"{n[0]}"),
    "percent": lambda n: int("%d" % n.max()),  # noqa: UP031 - it is what is tested
    "key made of it": lambda n: {"expert_3": 3}[f"expert_{n.max()}"],
    "key": lambda n: {3: 3}[n.max().item()],
    "place in a list": lambda n: [0, 1, 2, 3][n.max()],
    "slice of a list": lambda n: len([0, 1, 2, 3, 4][: n.max()]),
    "tensor of tensors": lambda n: int(torch.tensor([n.max(), n.min()])[0]),
    "tensor of lists of tensors": lambda n: int(torch.tensor([[n.max(), 0], [1, n[1]]]).max()),
    "tensor of tensors by name": lambda n: int(torch.tensor(data=[n.max()])),
    "as_tensor": lambda n: int(torch.as_tensor([n.max(), 1]).max()),
    "new_tensor": lambda n: int(n.new_tensor([n.max(), 1]).max()),
    "numpy": lambda n: int(n.numpy().max()),
    "array": lambda n: int(np.asarray(n).max()),
    "array of another type": lambda n: int(np.array(n, dtype=np.float32).max()),
    "array of tensors": lambda n: int(np.array([n.max(), n.min()]).max()),
    "concatenated arrays": lambda n: int(np.concatenate([n, n]).max()),
    "from numpy": lambda n: int(torch.from_numpy(n.numpy()).max()),
    "written array": lambda n: (n.numpy().fill(3), int(n.min()))[1],
    "dlpack": lambda n: int(torch.from_dlpack(n).max()),
    "tolist": lambda n: max(n.tolist()),
    "unpacked": lambda n: [int(a) for a, _, _ in [n]].pop(),
    "print": lambda n: int(str(n)[8]),  # tensor([3, 1, 2])
    "repr": lambda n: int(repr(n.max())[7]),  # tensor(3)
    "comparison": lambda n: 3 if n.max() == 3 and n.min() < 2 and n.max() in (3, 4) and 3 in n else 0,
    "sorted": lambda n: int(sorted(n)[1]) + 1,
    "pickle": lambda n: int(pickle.loads(pickle.dumps(n)).max()),
    "saved and loaded": lambda n: int(saved(n).max()),
    "copy": lambda n: int(copy.copy(n).max()),
    "deep copy": lambda n: int(copy.deepcopy({"a": [n]})["a"][0].max()),
    "chosen by a mask": lambda n: n[n > 1].tolist()[0],
    "selected by a mask": lambda n: n.masked_select(n > 2).tolist()[0],
}


class Repeats(nn.Module):
    """Calls its layer as often as a question about the numbers is answered."""

    def __init__(self, question: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, device="meta")
        self.question = question

    def forward(self, x: Tensor, n: Tensor) -> list[Tensor]:
        return [self.layer(x) for _ in range(int(self.question(n)))]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_known_content_answers_as_a_real_tensor_does(name: str) -> None:
    question = QUESTIONS[name]
    assert question(N.clone()) == 3  # of a real tensor
    given = N.clone()
    report = opcost.count(Repeats(question), (torch.empty(B, D), given))
    assert report.totals.macs == 3 * LAYER
    assert torch.equal(given, N)


UNKNOWN: dict[str, Callable[[Tensor], Any]] = {
    "format": lambda x: f"{x.mean():.2f}",
    "tensor of tensors": lambda x: torch.tensor([x.max(), x.min()]),
    "array": np.asarray,
    "dlpack": torch.from_dlpack,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_content_is_no_crash_and_no_guess(calls: Any, name: str) -> None:
    with pytest.raises(DataDependent, match="content of a"):
        opcost.count(calls(UNKNOWN[name]), torch.rand(B, D), real=False)


def test_a_tensor_of_floats_without_data_can_be_shown_and_copied(count: Any) -> None:
    def forward(x: Tensor) -> Tensor:
        assert str(x) == f"{x}" == "Recorded(4x6, float32, cpu)"
        return copy.deepcopy(x) @ copy.copy(x).T

    assert count(forward, torch.rand(B, D), real=False).totals.macs == B * D * B


def test_a_content_that_was_written_to_is_not_known_any_more(calls: Any) -> None:
    def forward(x: Tensor) -> Any:
        known = torch.zeros(3)
        known[0] = x.sum()
        return known.tolist()

    with pytest.raises(DataDependent, match="content of a 3 float32 tensor"):
        opcost.count(calls(forward), torch.rand(B), real=False)


# -- every way out of a tensor -----------------------------------------------------------------------------------------


def at_address(address: int, t: Tensor) -> Any:
    return (ctypes.c_int64 if t.dtype is torch.int64 else ctypes.c_float).from_address(address).value


def first(memory: Any) -> Any:
    """The first number of what a way hands out: an array, a tensor, a list or a storage."""
    return memory[0]


def copied(storage: torch.UntypedStorage, t: Tensor) -> Tensor:
    return torch.empty(0, dtype=t.dtype).set_(storage)


def pickled_for_a_process(t: Tensor) -> Any:
    ForkingPickler.dumps(t)
    return t.tolist()[0]


def written_to_the_storage(t: Tensor) -> Any:
    t.storage()[0] = t.storage()[0]
    return t.tolist()[0]


WAYS: dict[str, Callable[[Tensor], Any]] = {
    "np.asarray": lambda t: first(np.asarray(t)),
    "np.array": lambda t: first(np.array(t)),
    "np.stack": lambda t: np.stack([t, t])[1, 0],
    "np.add": lambda t: first(np.add(t, 0)),
    "__array__": lambda t: first(t.__array__()),
    "numpy": lambda t: first(t.numpy()),
    "numpy of the class": lambda t: first(torch.Tensor.numpy(t)),
    "numpy of a copy": lambda t: first(t.detach().cpu().numpy()),
    "__array_interface__": lambda t: at_address(t.numpy().__array_interface__["data"][0], t),
    "memoryview": lambda t: first(memoryview(t.numpy())),
    "torch.frombuffer": lambda t: first(torch.frombuffer(t.numpy(), dtype=t.dtype)),
    "torch.from_numpy": lambda t: first(torch.from_numpy(np.asarray(t))),
    "torch.asarray": lambda t: first(torch.asarray(t)),
    "torch.from_dlpack": lambda t: first(torch.from_dlpack(t)),
    "np.from_dlpack": lambda t: first(np.from_dlpack(t)),
    "__dlpack__": lambda t: first(torch.utils.dlpack.from_dlpack(t.__dlpack__())),
    "to_dlpack": lambda t: first(torch.from_dlpack(torch.utils.dlpack.to_dlpack(t))),
    "storage": lambda t: t.storage()[t.storage_offset()],
    "storage as a list": lambda t: t.storage().tolist()[t.storage_offset()],
    "storage of another type": lambda t: t.storage().double()[t.storage_offset()],
    "storage that is written": written_to_the_storage,
    "bytes of the storage": lambda t: np.frombuffer(bytes(t.untyped_storage()), dtype=t.numpy().dtype)[
        t.storage_offset()
    ],
    "copied storage": lambda t: copied(t.untyped_storage().clone(), t)[t.storage_offset()],
    "set to the storage": lambda t: copied(t.untyped_storage(), t)[t.storage_offset()],
    "data_ptr": lambda t: at_address(t.data_ptr(), t),
    "data_ptr of the storage": lambda t: at_address(
        t.untyped_storage().data_ptr() + t.storage_offset() * t.element_size(), t
    ),
    "pickle": lambda t: first(pickle.loads(pickle.dumps(t))),
    "pickle for a process": pickled_for_a_process,
    "torch.save": lambda t: first(saved(t)),
    "copy.copy": lambda t: first(copy.copy(t)),
    "copy.deepcopy": lambda t: first(copy.deepcopy(t)),
    "tolist": lambda t: first(t.tolist()),
    "tolist of the class": lambda t: first(torch.Tensor.tolist(t)),
    "iteration": lambda t: first(list(t)),
    "str": lambda t: float(str(t).partition("[")[2].partition(",")[0]),
    "repr": lambda t: float(repr(t).partition("[")[2].partition(",")[0]),
    "format": lambda t: float(f"{t[0]}"),
    "format of the whole": lambda t: float(f"{t}".partition("[")[2].partition(",")[0]),
}

COMPILED: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda t: first(torch._C.TensorBase.numpy(t)),
    "dlpack": lambda t: first(torch.from_dlpack(torch._C._to_dlpack(t))),
    "data_ptr": lambda t: at_address(torch._C.TensorBase.data_ptr(t), t),
    "map_": lambda t: first(t.clone().map_(t.clone(), lambda a, _: a)),
}
"""Compiled code that gets the tensor itself: it may need a real run, and must not read what was never written."""


def made(x: Tensor) -> Tensor:
    return torch.tensor([3, 1, 2])


def written(x: Tensor) -> Tensor:
    t = torch.tensor([1, 1, 2])
    t[0] += 2
    return t


def computed(x: Tensor) -> Tensor:
    return torch.arange(4).flip(0)[0:3] * torch.ones_like(torch.arange(3))


def viewed(x: Tensor) -> Tensor:
    return torch.tensor([0, 3, 1, 2])[1:]


KNOWN = (made, written, computed, viewed)


class Reads(nn.Module):
    """Calls its layer as often as a way out of some tensors says."""

    def __init__(self, way: Callable[[Tensor], Any], makers: Sequence[Callable[[Tensor], Tensor]], device: str) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D, device=device)
        self.way = way
        self.makers = makers

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.layer(x) for make in self.makers for _ in range(int(self.way(make(x))))]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:.*given NumPy array is not writable")
@pytest.mark.parametrize("name", WAYS)
def test_every_way_out_of_a_known_tensor_gives_its_numbers(name: str) -> None:
    assert [int(WAYS[name](make(torch.empty(0)))) for make in KNOWN] == [3, 3, 3, 3]
    report = opcost.count(Reads(WAYS[name], KNOWN, "meta"), torch.empty(B, D))
    assert report.totals.macs == len(KNOWN) * 3 * LAYER
    assert report.notes == ()


def summed(x: Tensor) -> Tensor:
    return x.sum(1)  # of ones: D


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:.*given NumPy array is not writable")
@pytest.mark.parametrize("name", WAYS)
def test_every_way_out_of_an_unknown_tensor_leads_to_a_run_on_the_weights(name: str) -> None:
    report = opcost.count(Reads(WAYS[name], [summed], "cpu"), torch.ones(B, D))
    assert report.totals.macs == D * LAYER
    assert [note.code for note in report.notes] == ["real-values"]


@pytest.mark.parametrize("make", [made, summed])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_never_reads_memory_that_was_not_written(name: str, make: Callable[[Tensor], Tensor]) -> None:
    report = opcost.count(Reads(COMPILED[name], [make], "cpu"), torch.ones(B, D))
    assert report.totals.macs == (3 if make is made else D) * LAYER


def test_memory_that_numpy_shares_is_not_read_after_unknown_numbers_were_written(calls: Any) -> None:
    def forward(x: Tensor) -> Tensor:
        known = torch.zeros(2)
        shared = known.numpy()
        known[0] = x.sum()
        return x[: int(shared[0])]

    assert opcost.count(calls(forward), torch.ones(3)).outputs[0].shape == (3,)
    with pytest.raises(DataDependent, match="shares"):
        opcost.count(calls(forward), torch.ones(3), real=False)


def test_a_buffer_of_floats_is_read_without_a_run_and_stays_as_it_was() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(D, D, device="meta")
            self.register_buffer("times", torch.tensor([2.0]))

        def forward(self, x: Tensor) -> list[Tensor]:
            times = self.times.numpy()
            times += 1
            return [self.layer(x) for _ in range(int(times[0]))]

    model = Scaled()
    assert opcost.count(model, torch.empty(B, D)).totals.macs == 3 * LAYER
    assert model.times.item() == 2


def test_switch_transformers_name_their_experts_with_known_numbers() -> None:
    declare_torchvision_operators()
    transformers = pytest.importorskip("transformers")
    width, hidden, tokens, experts = 16, 32, 8, 4
    config = transformers.SwitchTransformersConfig(
        d_model=width, d_ff=hidden, d_kv=8, num_heads=2, vocab_size=50, num_experts=experts, num_layers=1,
        num_sparse_encoder_layers=1, num_decoder_layers=1, num_sparse_decoder_layers=1,
    )  # fmt: skip
    model = transformers.SwitchTransformersModel(config).eval()
    ids = torch.ones(1, tokens, dtype=torch.int64)
    report = opcost.count(model, kwargs={"input_ids": ids, "decoder_input_ids": ids}, real=False)
    sparse = [row for row in report.rows if ".experts." in row.op.module and row.op.kind == "matmul"]
    # Every token goes through one expert, up and down, in the encoder and in the decoder.
    assert sum(row.cost.macs for row in sparse if row.cost) == 2 * tokens * 2 * width * hidden
