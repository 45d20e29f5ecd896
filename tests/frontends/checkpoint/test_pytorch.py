"""PyTorch's files: archives and the stacks of pickles before them, read without torch; and pickles that would run something."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import SourceError

torch = pytest.importorskip("torch")
nn = torch.nn


def net() -> Any:
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Sequential(nn.Linear(5, 2, bias=False)))


NAMES = {name: tuple(tensor.shape) for name, tensor in net().state_dict().items()}
PARAMS = 3 * 5 + 5 + 4 * 5 + 1 + 5 * 2
BYTES = 4 * (PARAMS - 1) + 8


@pytest.fixture(params=[True, False], ids=["archive", "stack"])
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def saved(thing: Any, name: str = "model.pt") -> Path:
        torch.save(thing, tmp_path / name, _use_new_zipfile_serialization=request.param)
        return tmp_path / name

    return saved


def test_a_state_dictionary_is_listed(save: Any) -> None:
    found = opcost.scan(save(net().state_dict()))
    assert {tensor.name: tensor.shape for tensor in found.tensors} == NAMES
    assert (found.totals.params, found.totals.bytes) == (PARAMS, BYTES)
    assert "3 tensors (11 elements) are running statistics" in found.notes[0].text


def test_a_whole_module_is_listed_as_its_state_dictionary_names_it(save: Any) -> None:
    found = opcost.scan(save(net()))
    assert {tensor.name: tensor.shape for tensor in found.tensors} == NAMES


def test_what_training_keeps_is_no_parameter(save: Any) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    state = model.state_dict()
    found = opcost.scan(
        save(
            {
                "epoch": 3,
                "state_dict": state,
                "state_dict_ema": dict(state.items()),
                "optimizer": optimizer.state_dict(),
                "rng_state": torch.zeros(1, dtype=torch.uint8),
            }
        )
    )
    assert {tensor.name for tensor in found.tensors if tensor.role == "weight"} == NAMES.keys()
    assert found.totals.params == PARAMS
    roles = {tensor.role for tensor in found.tensors}
    assert roles == {"weight", "copy", "optimizer"}
    # Adam keeps two moments of every parameter and five steps, and a generator here one byte
    trained = 3 * 5 + 5 + 5 + 5 + 5 * 2
    assert sum(tensor.bytes for tensor in found.tensors if tensor.role == "optimizer") == 4 * (2 * trained + 5) + 1


def test_a_weight_under_two_names_is_one(save: Any) -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    model["head"].weight = model["embed"].weight
    found = opcost.scan(save(model.state_dict()))
    assert (found.totals.params, found.totals.bytes) == (40, 160)
    assert found.tensors[1].tied_to == "embed.weight"
    assert found.notes[0].text == "stored once, counted once: head.weight = embed.weight"


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "bool", "complex64", "float8_e4m3fn"]
)
def test_element_types(save: Any, dtype: str) -> None:
    tensor = torch.zeros(3, 4).to(getattr(torch, dtype))
    (found,) = opcost.scan(save({"w": nn.Parameter(tensor, requires_grad=False)})).tensors
    assert (found.dtype, found.shape, found.bytes) == (dtype, (3, 4), tensor.nbytes)


def test_names_that_begin_alike_are_not_taken_for_a_wrapper(save: Any) -> None:
    found = opcost.scan(save({"model.a": torch.zeros(2), "model.b": torch.zeros(3)}))
    assert [tensor.name for tensor in found.tensors] == ["model.a", "model.b"]


def test_a_scripted_module_is_listed(tmp_path: Path) -> None:
    torch.jit.script(net().eval()).save(str(tmp_path / "m.pt"))
    found = opcost.scan(tmp_path / "m.pt")
    assert {tensor.name: tensor.shape for tensor in found.tensors} == NAMES


def test_torch_is_not_imported(save: Any) -> None:
    path = str(save(net().state_dict()))
    code = (
        f"import opcost, sys; print(opcost.scan({path!r}).totals.params, *({{'torch', 'numpy'}} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{PARAMS}\n"


# -- pickles that would run something ---------------------------------------------------------------------------------------


class Payload:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def archive(path: Path, content: bytes, data: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/data/0", data)
    return path


def test_a_payload_is_named_and_not_run(save: Any, tmp_path: Path) -> None:
    import os

    target = tmp_path / "run"
    for call in (
        (os.system, f"touch {target}"),
        (eval, f"open({str(target)!r}, 'w')"),
        (getattr, "text", "upper"),
        (exec, "pass"),
    ):
        path = save({"w": torch.zeros(2), "x": Payload(*call)})
        with pytest.raises(
            SourceError, match=rf"asks for \w+.{call[0].__name__}, which could run code; nothing of it was run"
        ):
            opcost.scan(path)
    assert not target.exists()


_STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
_END = b"K\0K\x04\x85K\x01\x85\x89NtRs"
_CALL = b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
HOSTILE = {
    "a size beyond the data": (_CALL + _STORAGE + b"K\0K\x63\x85K\x01\x85\x89NtRs.", "is outside of its data"),
    "a negative size": (_CALL + _STORAGE + b"K\0J\xff\xff\xff\xff\x85K\x01\x85\x89NtRs.", "a tensor of the size"),
    "a gigantic size": (_CALL + _STORAGE + b"K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85K\x01\x85\x89NtRs.", "is outside"),
    "a number of thousands of bits": (b"\x80\x02}N\x8b" + (4000).to_bytes(4, "little") + b"\x7f" * 4000 + b"s.", "too large"),
    "data that is not there": (_CALL + _STORAGE.replace(b"\x000X", b"\x007X") + _END + b".", "is missing"),
    "data that is shorter": (_CALL + _STORAGE.replace(b"cpuK\x04", b"cpuK\x05") + _END + b".", "is cut short"),
    "a tensor of nothing": (_CALL + b"NK\0K\x04\x85K\x01\x85\x89NtRs.", "something else than data"),
    "another kind of data": (b"\x80\x02N" + b"Q.", "in a way that PyTorch does not"),
    "a step of the first pickles": (b"ios\nsystem\n.", "uses the step INST"),
    "nothing": (b"", "damaged|end"),
    "deep nesting": (b"\x80\x02" + b"]" * 200 + _CALL[2:] + _STORAGE + _END + b"a" * 200 + b".", "nested more than"),
    "a doubled tuple as a key": (
        b"\x80\x02}K\x01" + b"".join(b"\x85q%ch%ch%c\x86" % (n, n, n) for n in range(60)) + b"Ns.", "unfolds"
    ),
    "another function's defaults": (
        b"\x80\x02ctorch._utils\n_rebuild_tensor\n(N}X\x0c\0\0\0__defaults__)stb.", "changes something"
    ),
    "a call of a class": (b"\x80\x02csubprocess\nPopen\nX\x02\0\0\0ls\x85R.", "asks for subprocess.Popen"),
    "a class from a stack": (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.", "asks for os.system"),
    "a function behind a subclass": (
        b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nNX\x02\0\0\0ls\x85NtR.", "in a way"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_one_clear_error(tmp_path: Path, case: str) -> None:
    content, message = HOSTILE[case]
    with pytest.raises(SourceError, match=message):
        opcost.scan(archive(tmp_path / "m.pt", content, bytes(16)))


def test_the_pickle_of_these_cases_is_read_where_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    (tensor,) = opcost.scan(archive(tmp_path / "m.pt", _CALL + _STORAGE + _END + b".", bytes(16))).tensors
    assert (tensor.name, tensor.shape, tensor.bytes) == ("w", (4,), 16)


def test_an_object_that_is_made_without_a_call_is_looked_into_and_never_made(tmp_path: Path) -> None:
    """What `object.__new__` would make, even of a class that is dangerous to call."""
    content = _CALL[:3] + b"X\x01\0\0\0ocsubprocess\nPopen\n)\x81}" + _CALL[3:] + _STORAGE + _END + b"bs."
    (tensor,) = opcost.scan(archive(tmp_path / "m.pt", content, bytes(16))).tensors
    assert tensor.name == "o.w"


def test_a_stack_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    torch.save(net().state_dict(), tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "m.pt").read_bytes()
    (tmp_path / "m.pt").write_bytes(content[:-1])
    with pytest.raises(SourceError, match="its data ends at byte"):
        opcost.scan(tmp_path / "m.pt")
    (tmp_path / "m.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError):
        opcost.scan(tmp_path / "m.pt")


def test_a_pickle_without_torch_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(SourceError, match="a Python pickle"):
        opcost.scan(tmp_path / "m.pt")
