"""MXNet, numpy, ONNX, MegEngine and Keras: the readers that are there already, used for tensors."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import opcost
from opcost.errors import MissingFramework, SourceError, UnknownSource

np = pytest.importorskip("numpy")
DATA = Path(__file__).resolve().parents[2] / "data"


def test_arrays_of_numpy(tmp_path: Path) -> None:
    arrays = {
        "layer.0.w": np.zeros((3, 4), "float16"),
        "layer.1.w": np.zeros((3, 4), "complex128"),
        "b": np.zeros((), "int64"),
    }
    np.savez(tmp_path / "m.npz", **arrays)
    found = opcost.scan(tmp_path / "m.npz")
    assert {each.name: (each.shape, each.dtype, each.bytes) for each in found.tensors} == {
        name: (array.shape, str(array.dtype), array.nbytes) for name, array in arrays.items()
    }
    np.save(tmp_path / "m.npy", np.zeros((5, 2), "float32"))
    assert opcost.scan(tmp_path / "m.npy").totals.params == 10
    np.save(tmp_path / "o.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(SourceError, match="not numbers"):
        opcost.scan(tmp_path / "o.npy")


@pytest.mark.parametrize(
    "path", sorted((DATA / "mxnet" / "params_formats").glob("v*.params")), ids=lambda path: path.name
)
def test_parameters_of_mxnet(path: Path) -> None:
    from opcost.frontends.mxnet.params import read_params

    arrays = [array for array in read_params(path) if array.shape is not None]
    found = opcost.scan(path)
    assert [(each.shape, each.dtype) for each in found.tensors] == [(array.shape, array.dtype) for array in arrays]
    assert all(each.bytes <= path.stat().st_size for each in found.tensors)


def test_a_dump_of_megengine_holds_the_parameters_that_are_counted() -> None:
    for name in ("dwnet_nogn.v1.mge", "mlp.v2.mge", "op_rnncell.v2.mge"):
        path = DATA / "megengine" / "mge" / name
        assert opcost.scan(path).totals.params == opcost.count(path).totals.params > 0


def test_a_pickled_dict_of_arrays(tmp_path: Path) -> None:
    arrays = {"conv.weight": np.zeros((4, 3, 3, 3), "float32"), "conv.bias": np.zeros((1, 4, 1, 1), "float32")}
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(arrays))
    found = opcost.scan(tmp_path / "m.pkl")
    assert (found.totals.params, found.totals.bytes) == (4 * 27 + 4, 4 * (4 * 27 + 4))
    (tmp_path / "m.pkl").write_bytes(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.")
    with pytest.raises(SourceError, match=r"asks for os.system"):
        opcost.scan(tmp_path / "m.pkl")


# -- ONNX -----------------------------------------------------------------------------------------------------------------


def onnx_model(folder: Path, **place: str) -> Path:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    inside = helper.make_tensor("b", kind.FLOAT, (4,), [0.0] * 4)
    outside = onnx.TensorProto(name="w", data_type=kind.FLOAT16, dims=(4, 3), data_location=kind.EXTERNAL)
    for key, value in {"location": "weights.bin", "offset": "8", "length": "24", **place}.items():
        if value:
            outside.external_data.add(key=key, value=value)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    values = [helper.make_tensor_value_info(name, kind.FLOAT, None) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "net", values[:1], values[1:], [inside, outside]))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    (folder / "weights.bin").write_bytes(bytes(32))
    return folder / "m.onnx"


@pytest.mark.parametrize("place", [{}, {"length": ""}, {"offset": "", "length": ""}])
def test_initializers_of_onnx_with_data_outside(tmp_path: Path, place: dict[str, str]) -> None:
    found = opcost.scan(onnx_model(tmp_path, **place))
    assert [(each.name, each.shape, each.dtype, each.bytes) for each in found.tensors] == [
        ("b", (4,), "float32", 16),
        ("w", (4, 3), "float16", 24),
    ]
    assert [Path(file).name for file in found.files] == ["m.onnx", "weights.bin"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"location": "../weights.bin"}, "outside of the folder"),
        ({"location": "/etc/passwd"}, "outside of the folder"),
        ({"location": "nothing.bin"}, "there is no file nothing.bin"),
        ({"offset": "9"}, "needs 24 bytes, and weights.bin has 32"),
        ({"offset": "-1"}, "is declared as"),
        ({"length": "9" * 5000}, "is declared as"),
        ({"length": "1"}, "needs 24 bytes"),
    ],
)
def test_data_outside_must_be_there_and_in_the_folder(tmp_path: Path, place: dict[str, str], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        opcost.scan(onnx_model(tmp_path, **place))


def test_data_outside_may_not_be_a_link_that_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "model", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    path = onnx_model(folder)
    (folder / "weights.bin").rename(other / "weights.bin")
    (folder / "weights.bin").symlink_to(other / "weights.bin")
    with pytest.raises(SourceError, match="is a link that leads out of the folder"):
        opcost.scan(path)
    path.rename(other / "m.onnx")  # as in the cache of a hub: model and data are links to one folder
    path.symlink_to(other / "m.onnx")
    assert opcost.scan(path).totals.params == 4 + 4 * 3


# -- Keras ----------------------------------------------------------------------------------------------------------------


def test_without_h5py_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingFramework, match="needs h5py"):
        opcost.scan(tmp_path / "m.h5")


def keras_weights(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.zeros((3, 4), "float32")
        file["layers/dense/vars/1"] = np.zeros((4,), "float32")
        file["optimizer/vars/0"] = np.zeros((3, 4), "float32")
        file["layers/dense/elsewhere"] = h5py.ExternalLink("/etc/passwd", "x")
        file["texts"] = ["a", "b"]


@pytest.mark.parametrize("packing", [0, 8])
def test_weights_of_keras(tmp_path: Path, packing: int) -> None:
    import zipfile

    keras_weights(tmp_path / "model.weights.h5")
    with zipfile.ZipFile(tmp_path / "m.keras", "w", packing) as archive:
        archive.writestr("metadata.json", "{}")
        archive.write(tmp_path / "model.weights.h5", "model.weights.h5")
    for name in ("model.weights.h5", "m.keras"):
        found = opcost.scan(tmp_path / name)
        assert (found.totals.params, found.totals.bytes) == (16, 4 * 16 + 4 * 12)
        assert [each.name for each in found.tensors if each.role == "weight"] == [
            "layers.dense.vars.0",
            "layers.dense.vars.1",
        ]


def test_a_damaged_file_of_keras_is_refused(tmp_path: Path) -> None:
    keras_weights(tmp_path / "m.h5")
    content = (tmp_path / "m.h5").read_bytes()
    (tmp_path / "m.h5").write_bytes(content[:300])
    with pytest.raises(SourceError, match="truncated file"):
        opcost.scan(tmp_path / "m.h5")


def unknown(path: Path, content: Any) -> Path:
    path.write_bytes(content)
    return path


def test_what_is_no_checkpoint_is_refused_by_what_it_is(tmp_path: Path) -> None:
    for content, message in (
        (b"<!DOCTYPE html>", "an HTML page"),
        (b"version https://git-lfs", "Git LFS pointer"),
        (b"\0" * 99, "binary file"),
    ):
        with pytest.raises(UnknownSource, match=message):
            opcost.scan(unknown(tmp_path / "model.safetensors", content))
