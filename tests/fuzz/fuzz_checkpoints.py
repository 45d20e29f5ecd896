"""Checkpoints: good files of every format, and ways to change what is special about each."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import fuzz_changes as change

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from checkpoint_making import gguf_bytes, safetensors_header


def safetensors() -> list[bytes]:
    """Plain and quantized, with the tensors whose content is read."""
    linear = {
        "m.layers.0.w": ("BF16", (4, 6)),
        "m.layers.1.w": ("BF16", (4, 6)),
        "m.norm": ("F32", (6,)),
        "none": ("F4", (0, 3)),
    }
    awq = {"q.qweight": ("I32", (64, 8)), "q.qzeros": ("I32", (1, 8)), "q.scales": ("F16", (1, 64))}
    packed = {"q.weight_packed": ("I32", (4, 2)), "q.weight_scale": ("F16", (4, 1)), "q.weight_shape": ("I64", (2,))}
    state = json.dumps({"quant_type": "nf4", "shape": [4, 6], "blocksize": 64}).encode()
    nested = {
        "q.weight": ("U8", (12, 1)),
        "q.weight.absmax": ("F32", (1,)),
        "q.weight.quant_state.bitsandbytes__nf4": ("U8", (len(state),)),
    }
    mlx = {"q.weight": ("U32", (4, 8)), "q.scales": ("F16", (4, 1)), "q.biases": ("F16", (4, 1))}
    contents = (None, None, bytes(32 + 8) + struct.pack("<2q", 4, 16), bytes(12 + 4) + state, None)
    found = []
    for tensors, content in zip((linear, awq, packed, nested, mlx), contents, strict=True):
        header, size = safetensors_header(tensors)  # type: ignore[arg-type]
        found.append(header + (content or bytes(size)))
    return found


def changed_header(data: bytes, rng: random.Random) -> bytes:
    """The header of a safetensors file changed as JSON, with its true length or another."""
    (length,) = struct.unpack_from("<Q", data)
    inner = rng.choice((change.json_structure, change.json_structure, change.json_text))
    header = inner(data[8 : 8 + length], rng)
    declared = len(header) if rng.random() < 0.9 else rng.choice(change.NUMBERS)
    return struct.pack("<Q", declared) + header + data[8 + length :]


def gguf() -> list[bytes]:
    keys = {
        "general.architecture": "llama",
        "llama.expert_count": 4,
        "llama.expert_used_count": 2,
        "tokens": ["a", "bcd"] * 20,
        "s": [0.5, 1.0],
    }
    tensors = [
        ("token_embd.weight", (10, 32), 8, 10 * 34),
        ("blk.0.ffn_up_exps.weight", (4, 2, 256), 12, 8 * 144),
        ("n", (5,), 0, 20),
    ]
    found = []
    for version, order in ((2, "<"), (3, "<"), (3, ">")):
        head, size = gguf_bytes(keys, tensors, version=version, order=order)
        found.append(head.ljust(size, b"\0"))
    head, size = gguf_bytes({"split.count": 2, "split.no": 0}, tensors)
    return [*found, head.ljust(size, b"\0")]


# -- PyTorch --------------------------------------------------------------------------------------------------------------


class _Call:
    """Something that is made by a call of a name."""

    def __init__(self, name: str, *args: object) -> None:
        self.name, self.args = name, args


class _Pickler(pickle._Pickler):
    """Writes calls by their names, without what is named being there."""

    def persistent_id(self, thing: object) -> object:
        return thing.args[0] if isinstance(thing, _Call) and thing.name == "storage" else None

    def save(self, thing: object, save_persistent_id: bool = True) -> None:
        if isinstance(thing, _Call) and thing.name != "storage":
            module, _, name = thing.name.rpartition(".")
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
            if thing.args:
                self.save(thing.args)
                self.write(pickle.REDUCE)
            return
        super().save(thing, save_persistent_id)


def _dumped(thing: object) -> bytes:
    out = io.BytesIO()
    _Pickler(out, 2).dump(thing)
    return out.getvalue()


def _tensor(key: str, shape: tuple[int, ...], kind: str = "Float") -> _Call:
    elements = 1
    for extent in shape:
        elements *= extent
    storage = _Call("storage", ("storage", _Call(f"torch.{kind}Storage"), key, "cpu", elements))
    return _Call("torch._utils._rebuild_tensor_v2", storage, 0, shape, tuple(1 for _ in shape), False, OrderedDict())


def _states() -> list[Any]:
    weights = OrderedDict(
        {"fc.weight": _tensor("0", (4, 3)), "fc.bias": _tensor("1", (4,)), "bn.running_mean": _tensor("2", (2, 2))}
    )
    parameter = _Call("torch._utils._rebuild_parameter", _tensor("0", (4, 3)), True, OrderedDict())
    return [
        weights,
        {"state_dict": weights, "optimizer": {"state": {0: {"exp_avg": _tensor("1", (4,))}}}, "epoch": 3, "lr": 0.5},
        [parameter],
    ]


def archives() -> list[bytes]:
    found = []
    for state in _states():
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("m/data.pkl", _dumped(state))
            archive.writestr("m/version", "3\n")
            for key, size in (("0", 48), ("1", 16), ("2", 16)):
                archive.writestr(f"m/data/{key}", bytes(size))
        found.append(out.getvalue())
    return found


def stacks() -> list[bytes]:
    """As PyTorch wrote before 1.6."""
    head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    data = b"".join(struct.pack("<q", elements) + bytes(4 * elements) for elements in (12, 4, 4))
    return [head + _dumped(state) + pickle.dumps(["0", "1", "2"], 2) + data for state in _states()[:1]]


_LONGEST = 40 << 20
"""Bytes of a changed description: more than are read."""


def changed_pickle(data: bytes, rng: random.Random) -> bytes:
    """An archive whose description has other steps."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, change.pickle_steps(content, rng)[:_LONGEST] if name.endswith(".pkl") else content)
    return out.getvalue()


def changed_stack(data: bytes, rng: random.Random) -> bytes:
    """A stack whose description has other steps, or other bytes anywhere."""
    if rng.random() < 0.5:
        return change.some_bytes(data, rng)
    begin = data.index(b".", data.index(b"little_endian")) + 1
    end = data.rindex(b"]q\0(") - 2
    return data[:begin] + change.pickle_steps(data[begin:end], rng)[:_LONGEST] + data[end:]


def keras() -> list[bytes]:
    """Groups, datasets, attributes and links as h5py writes them."""
    import h5py

    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        for name, shape in (
            ("layers/dense/vars/0", (3, 4)),
            ("layers/dense/vars/1", (4,)),
            ("optimizer/vars/0", (3, 4)),
        ):
            file.create_dataset(name, shape, "f4")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "x")
        file["layers"].attrs["names"] = ["dense"]
    return [out.getvalue()]


# -- the index of shards ------------------------------------------------------------------------------------------------------


def indexes() -> list[bytes]:
    names = ("m.layers.0.w", "m.layers.1.w", "m.norm", "none")
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "a.safetensors")}).encode()]
