"""Files of the names that commands in the documents take, so that each of them can be run as it is written."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

from checkpoint_making import write_gguf, write_safetensors

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
TRACE = ROOT / "examples/trace.json.gz"
TRACES = (
    "trace.json.gz", "monday.trace.json", "tuesday.trace.json", "TRACE", "PROFILE", "a", "b", "BEFORE", "AFTER",
)  # fmt: skip

NET = '''
import torch


class Net(torch.nn.Module):
    """Takes what commands give it: images, tokens, or several tensors by name."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.embedding = torch.nn.Embedding(100, 8)
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x=None, step=None, mode=None, *, input_ids=None, mask=None):
        x = input_ids if x is None else x
        if x.dim() == 4:
            return self.conv(x).mean((2, 3))
        found = self.head(self.embedding(x.long()))
        return found if mask is None else found * mask[..., None]

    def encode_image(self, image):
        return self.conv(image)
'''
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
    "num_hidden_layers": 1, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 16384,
}  # fmt: skip


def write_named_files(folder: Path) -> None:
    """Models, checkpoints, traces, saved results and a budget file."""
    import opcost
    from opcost.core.limits import save_baseline
    from opcost.devices.calibration import Calibration, dumps
    from opcost.devices.hosts import shipped_host

    for name in ("examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "net.py").write_text(NET)
    (folder / "models").mkdir()
    shutil.copy(ROOT / "examples/transformer.py", folder / "models/decoder.py")
    to = folder / "path/to"
    (to / "folder").mkdir(parents=True)
    for path in (folder / "config.json", to / "config.json", to / "folder/config.json"):
        path.write_text(json.dumps(LLAMA))
    write_safetensors(to / "folder/model.safetensors", {"model.embed_tokens.weight": ("F16", (256, 64))})
    write_safetensors(folder / "net.safetensors", {"conv.weight": ("F32", (8, 3, 3, 3)), "conv.bias": ("F32", (8,))})
    for name in ("model.safetensors", "PATH"):
        shutil.copy(folder / "net.safetensors", folder / name)
    shutil.copytree(to / "folder", folder / "FOLDER")
    write_gguf(folder / "model.gguf", {"general.architecture": "llama"}, [("token_embd.weight", (256, 64), 0, 65536)])
    _write_with_torch(folder)
    for name, texts in (("net", ("batch", 16)), ("model", (1, 16)), ("exported", ("batch", "seq"))):
        _write_onnx(folder / f"{name}.onnx", texts)
    shutil.copy(DATA / "megengine/mge/dwnet_nogn.v2.mge", folder / "net.mge")
    shutil.copy(DATA / "mxnet/zoo/resnet18_v1/model-symbol.json", folder)
    for name in TRACES:
        shutil.copy(TRACE, folder / name)
    with gzip.open(TRACE) as trace:
        content = trace.read()
    (folder / "trace.json").write_bytes(content)
    (folder / "cut.json").write_bytes(content[: len(content) // 2])
    for name in ("traces", "DIR"):
        (folder / name).mkdir()
        for rank in range(2):
            shutil.copy(TRACE, folder / name / f"rank{rank}.json.gz")
    with gzip.open(DATA / "megengine/profile/dwnet_nogn.v2.json.gz") as profile:
        (folder / "prof.json").write_bytes(profile.read())
    host = Calibration(device="cpu", meta={}, position=0, rows=(), host=shipped_host().host)
    (folder / "host.json").write_text(dumps(host))
    report = opcost.count("timm:resnet50")
    for name in ("report", "before", "after", "a", "b", "resnet18"):
        report.save(folder / f"{name}.json")
    (tables,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/budgets.md").read_text(encoding="utf-8"), re.DOTALL)
    (folder / "opcost.toml").write_text(tables)
    for name in ("budgets.json", "baseline.json"):
        save_baseline(folder / name, {})


def _write_with_torch(folder: Path) -> None:
    import torch

    import opcost

    torch.save({"conv.weight": torch.zeros(8, 3, 3, 3)}, folder / "pytorch_model.bin")
    opcost.profile(torch.nn.Conv2d(3, 8, 3), torch.zeros(1, 3, 8, 8), repeat=1, warmup=0).save(folder / "profile.json")


def _write_onnx(path: Path, texts: tuple[int | str, ...]) -> None:
    """A product with as many texts of as many tokens as this says."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save_model

    table = numpy_helper.from_array(np.zeros((8, 8), "float32"), "table")
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (*texts, 8)) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "table"], ["y"])], "net", [given], [result], [table])
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
