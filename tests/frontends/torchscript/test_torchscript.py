"""TorchScript archives, counted from their text: what the module itself costs."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import InputError, OpcostError, SourceError

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Attention(nn.Module):
    """Splits, moves, products, and sizes that the code reads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.softmax(q @ k.transpose(-2, -1) * 0.5, -1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens).unsqueeze(1)
        return F.scaled_dot_product_attention(x, x, x)[:, 0] @ self.embed.weight.t()


class Again(nn.Module):
    """One module that is called twice, and two names of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.other.weight = self.one.weight

    def forward(self, x: Any) -> Any:
        return self.other(self.one(F.gelu(self.one(x))))


class Shapes(nn.Module):
    """Joins, cuts, windows and padding."""

    def forward(self, x: Any) -> Any:
        left, right = x.chunk(2, 1)
        y = torch.cat([left, F.pad(right, (0, 1, 0, 1))[:, :, 1:, 1:]], 1)
        y = F.interpolate(y, scale_factor=2.0) + torch.arange(y.shape[-1] * 2)
        return torch.stack([y.flatten(1), y.mean((2, 3)).repeat(1, y.shape[2] * y.shape[3])]).expand(2, -1, -1)


NETS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, 1, 1, groups=8),
            nn.Hardswish(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 10),
        ),
        (torch.zeros(2, 3, 16, 16),),
    ),
    "attention": (Attention, (torch.zeros(2, 5, 16),)),
    "fused attention": (Fused, (torch.zeros(2, 5, dtype=torch.int64),)),
    "a module twice": (Again, (torch.zeros(3, 8),)),
    "shapes": (Shapes, (torch.zeros(2, 4, 6, 6),)),
    "up": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2), nn.Upsample(scale_factor=2), nn.GroupNorm(2, 6)),
        (torch.zeros(1, 4, 5, 5),),
    ),
    "recurrent": (lambda: nn.LSTM(4, 6, 2, bidirectional=True), (torch.zeros(5, 2, 4),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (torch.zeros(2, 5, 16),)),
}  # fmt: skip


def saved(folder: Path, model: Any, inputs: tuple[Any, ...]) -> Path:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a trace fixes does not matter here
        torch.jit.trace(model, inputs, check_trace=False).save(str(folder / "net.pt"))
    return folder / "net.pt"


def macs_by_kind(report: opcost.Report) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in report.rows:
        found[row.op.kind] += row.cost.macs if row.cost is not None else 0
    return {kind: macs for kind, macs in found.items() if macs}


@pytest.mark.parametrize("name", NETS)
def test_an_archive_costs_what_its_module_costs(tmp_path: Path, name: str) -> None:
    make, inputs = NETS[name]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        model = make().eval()
        path, expected = saved(tmp_path, model, inputs), opcost.count(model, *inputs)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    shapes, dtypes = [tuple(x.shape) for x in inputs], [str(x.dtype).removeprefix("torch.") for x in inputs]
    found = opcost.count(path, shapes=shapes, dtypes=dtypes)
    assert macs_by_kind(found) == macs_by_kind(expected)
    assert found.totals.params == expected.totals.params
    assert [spec.shape for spec in found.outputs] == [spec.shape for spec in expected.outputs]
    assert not found.coverage.uncounted
    assert {module.path: module.total.macs for module in expected.modules}.items() <= {
        module.path: module.total.macs for module in found.modules
    }.items()


def test_other_sizes_are_followed_where_the_code_reads_them(tmp_path: Path) -> None:
    path = saved(tmp_path, Attention().eval(), (torch.zeros(2, 5, 16),))
    batch, length = 3, 7
    macs = batch * length * (16 * 48 + 16 * 16) + 2 * batch * 4 * length * length * 4
    assert opcost.count(path, shapes=[(batch, length, 16)]).totals.macs == macs


class Chosen(nn.Module):
    """A script with branches and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, deep: bool = True) -> torch.Tensor:
        if deep and x.size(0) > 1:
            for _ in range(3):
                x = self.fc(x)
        return torch.relu(x)


def test_a_script_is_followed_where_sizes_decide(tmp_path: Path) -> None:
    torch.jit.script(Chosen()).save(str(tmp_path / "net.pt"))
    assert opcost.count(tmp_path / "net.pt", shapes=[(2, 4)]).totals.macs == 3 * 2 * 4 * 4
    assert opcost.count(tmp_path / "net.pt", shapes=[(1, 4)]).totals.macs == 0


class Data(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            x = x + 1
        return x


def test_what_data_decides_is_refused_with_its_line(tmp_path: Path) -> None:
    torch.jit.script(Data()).save(str(tmp_path / "net.pt"))
    with pytest.raises(SourceError, match=r"line \d+ of the archive's code: .*depends on data"):
        opcost.count(tmp_path / "net.pt", shapes=[(2, 4)])


def test_a_shape_must_be_given(tmp_path: Path) -> None:
    path = saved(tmp_path, nn.Linear(4, 4), (torch.zeros(2, 4),))
    with pytest.raises(InputError, match="does not tell the shapes of its inputs"):
        opcost.count(path)


def test_pytorch_is_not_imported(tmp_path: Path) -> None:
    path = saved(tmp_path, nn.Linear(4, 4), (torch.zeros(2, 4),))
    code = f"import sys, opcost; opcost.count({str(path)!r}, shapes=[(2, 4)]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- hostile archives ------------------------------------------------------------------------------------------------------


def rewritten(path: Path, **changes: bytes) -> Path:
    """The archive with other members, by the ends of their names."""
    found = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(found, "w") as new:
        for name in old.namelist():
            other = next(
                (content for end, content in changes.items() if name.endswith(end.replace("_DOT_", "."))), None
            )
            new.writestr(name, old.read(name) if other is None else other)
    path.write_bytes(found.getvalue())
    return path


HEAD = b"class Linear(Module):\n  __parameters__ = []\n  __buffers__ = []\n"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"return __import__('os').system('touch ran')", "__import__"),
        (b"return eval('1')", "a call of eval"),
        (b"import os", "a Import statement|Import"),
        (b"return (self).forward(input)", "without end"),
        (b"return [0 for _ in range(9)]", "ListComp"),
        (b"x = 2\n    for i in range(40):\n      x = torch.mul(x, x)\n    return x", "more than 64 bits"),
        (b"return self.nothing", "no attribute 'nothing'"),
        (b"return torch.no_such_operator(input)", "the operator aten::no_such_operator is not known"),
        (b"return torch.size(input, 9)", "the arguments of aten::size do not fit it"),
    ],
)
def test_code_is_looked_at_and_never_run(tmp_path: Path, body: bytes, fault: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, nn.Linear(4, 4), (torch.zeros(2, 4),))
    rewritten(path, _DOT_py=HEAD + b"  def forward(self, input):\n    " + body + b"\n")
    with pytest.raises(OpcostError, match=fault):
        opcost.count(path, shapes=[(2, 4)])
    assert not (tmp_path / "ran").exists()


class Payload:
    def __reduce__(self) -> Any:
        return exec, ("open('ran', 'w')",)


def test_a_pickle_with_a_payload_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, nn.Linear(4, 4), (torch.zeros(2, 4),))
    rewritten(path, data_DOT_pkl=pickle.dumps(Payload()))
    with pytest.raises(SourceError, match="could run code"):
        opcost.count(path, shapes=[(2, 4)])
    assert not (tmp_path / "ran").exists()


def test_code_that_is_missing_or_no_code_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, nn.Linear(4, 4), (torch.zeros(2, 4),))
    with pytest.raises(SourceError, match="cannot be parsed"):
        opcost.count(rewritten(path, _DOT_py=b"class ("), shapes=[(2, 4)])
    with pytest.raises(SourceError, match="is missing"):
        opcost.count(rewritten(path, _DOT_py=b"x = 1"), shapes=[(2, 4)])


def test_an_archive_whose_weights_torch_left_out_says_so(tmp_path: Path) -> None:
    """With oneDNN `optimize_for_inference` makes constants that have no place in an archive; the code of such a one."""
    torch.jit.trace(nn.Linear(4, 4), torch.zeros(2, 4)).save(str(tmp_path / "net.pt"))
    code = b"  def forward(self, input):\n    w = ops.prim.ConstantMKLDNNTensor()\n    return torch.linear(input, w)\n"
    with pytest.raises(SourceError, match="PyTorch cannot load it either"):
        opcost.count(rewritten(tmp_path / "net.pt", _DOT_py=HEAD + code), shapes=[(2, 4)])
