"""Small files whose meaning is large, and a process that reads them one by one and says what each took.

Random changes do not find these: each is written by hand. A file is read in a child of this process, so that what one of them
takes is seen alone: `python tests/fuzz/explosions.py FOLDER` reads names from its input and answers with one line of JSON.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import sqlite3
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from explosions_onnx import ONNX

FILES: dict[str, Callable[[Path], list[str]]] = dict(ONNX)
"""What writes a file into a folder and says with which words `opcost` reads it."""


def explosion(make: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    FILES[make.__name__] = make
    return make


def doubled(times: int = 60) -> Any:
    found: Any = [1]
    for _ in range(times):
        found = [found, found]
    return found


# -- TorchScript -----------------------------------------------------------------------------------------------------------

_ROOT = b"\x80\x02c__torch__\nN\n)\x81}X\x08\x00\x00\x00training\x89sb."


def script(
    folder: Path, body: str, *, more: str = "", data: bytes = _ROOT, constants: bytes | None = None
) -> list[str]:
    code = "class N(Module):\n  __parameters__ = []\n  __buffers__ = []\n  def forward(self, x: Tensor) -> Tensor:\n"
    code += "".join(f"    {line}\n" for line in body.split("\n")) + more
    with zipfile.ZipFile(folder / "net.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", data)
        archive.writestr("net/code/__torch__.py", code)
        if constants is not None:
            archive.writestr("net/constants.pkl", constants)
    return ["count", "net.pt", "--input", "x:2x4"]


def scripted(name: str, body: str, **more: Any) -> None:
    FILES[f"script_{name}"] = lambda folder: script(folder, body, **more)


_TWICE = "y = (x, x)\n" + "y = (y, y)\n" * 60
scripted("tuple_that_is_returned", _TWICE + "return y")
scripted("tuple_that_is_joined", _TWICE + "return torch.cat(y)")
scripted("tuple_that_is_printed", "y = (1, 1)\n" + "y = (y, y)\n" * 60 + 'z = torch.format("{}", y)\nreturn x')
scripted(
    "tuples_that_are_compared",
    "y = (1, 1)\nz = (1, 1)\n" + "y = (y, y)\nz = (z, z)\n" * 60 + "z = torch.eq(y, z)\nreturn x",
)
scripted("dict_in_dicts", "y = {1: 1}\n" + "y = {1: y, 2: y}\n" * 60 + "z = torch.str(y)\nreturn x")
scripted("list_that_holds_itself", "y = [1]\nz = torch.append(y, y)\nz = torch.str(y)\nreturn x")
scripted("list_that_grows_by_itself", "y = [1]\n" + "z = torch.extend(y, y)\n" * 60 + "return x")
scripted("long_loop", "for i in range(1000000000000):\n  pass\nreturn x")
scripted("endless_loop", "while True:\n  pass\nreturn x")
scripted("loop_of_operators", "y = x\nfor i in range(1000000000000):\n  y = torch.relu(y)\nreturn y")
scripted("loop_that_appends", "y = [1]\nfor i in range(1000000000000):\n  z = torch.append(y, 1)\nreturn x")
scripted(
    "loop_of_sums_of_lists",
    "y = torch.rangelist(20000)\nfor i in range(1000000000000):\n  z = torch.add(y, [1])\nreturn x",
)
scripted("list_of_many", "y = torch.mul([0], 1000000000000)\nreturn x")
scripted("range_of_many", "y = torch.rangelist(1000000000000)\nreturn x")
scripted("text_that_doubles", 'y = "ab"\n' + "y = torch.add(y, y)\n" * 60 + "return x")
scripted("squares", "y = 3\n" + "y = torch.mul(y, y)\n" * 60 + "return x")
scripted("powers", "y = 9\n" + "y = torch.pow(y, y)\n" * 9 + "return x")
scripted("shift_by_infix", "y = 9\n" + "y = (y * y) * (y * y)\n" * 60 + "return x")
scripted("tensors_that_are_unbound", "y = torch.unbind(torch.zeros([1000000000]))\nreturn x")
scripted("tensors_that_are_split", "y = torch.split(torch.zeros([1000000000]), 1)\nreturn x")
scripted("tensors_that_are_chunked", "y = torch.chunk(torch.zeros([1000000000]), 1000000000)\nreturn x")
scripted("tensor_that_doubles", "y = x\n" + "y = torch.cat([y, y])\n" * 2000 + "return y")
scripted("tensor_of_many_axes", "y = x\n" + "y = torch.unsqueeze(y, 0)\n" * 3000 + "return y")
scripted("deep_brackets", "return " + "(" * 3000 + "x" + ")" * 3000)
scripted("much_code", "y = [" + "1," * 2_000_000 + "]\nreturn x")
scripted("constants_that_are_shared", "z = torch.str(CONSTANTS.c0)\nreturn x", constants=pickle.dumps([doubled()], 2))
scripted(
    "functions_that_call_twice",
    "return (self).f0(x)",
    more="".join(
        f"  def f{i}(self, x):\n    y = (self).f{i + 1}(x)\n    return (self).f{i + 1}(y)\n" for i in range(60)
    )
    + "  def f60(self, x):\n    return x\n",
)
scripted(
    "functions_that_call_twice_without_end",
    "return (self).forward((self).forward(x))",
)


@explosion
def script_modules_that_are_shared(folder: Path) -> list[str]:
    """Each module has the next one twice, so that there are 2 ** 50 paths."""
    steps = b""
    for place in range(50):  # c N, made and remembered; its attributes are the one before, twice
        steps += b"c__torch__\nN\n)\x81"
        steps += b"}" + (b"X\x01\x00\x00\x00ah\x00sX\x01\x00\x00\x00bh\x00s" if place else b"") + b"bq\x000"
    return script(folder, "return x", data=b"\x80\x02" + steps + b"h\x00.")


# -- checkpoints -----------------------------------------------------------------------------------------------------------


@explosion
def pickle_size_that_is_shared(folder: Path) -> list[str]:
    """A tensor whose size is lists in lists."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
    size = pickle.dumps(doubled(), 2)[2:-1]
    call = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + b"K\x00"
        + size
        + b"\x85)\x89ccollections\nOrderedDict\n)RtR"
    )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("net/data.pkl", b"\x80\x02}X\x01\x00\x00\x00w" + call + b"s.")
        archive.writestr("net/version", "3\n")
    (folder / "net.pth").write_bytes(content.getvalue())
    return ["scan", "net.pth"]


def pickled(name: str, found: Any) -> None:
    def make(folder: Path) -> list[str]:
        with zipfile.ZipFile(folder / "net.pth", "w") as archive:
            archive.writestr("net/data.pkl", pickle.dumps(found, 2))
            archive.writestr("net/version", "3\n")
        return ["scan", "net.pth"]

    FILES[f"pickle_{name}"] = make


pickled("lists_that_are_shared", {"a": doubled()})
_DICT: Any = {"w": 1}
for _ in range(60):
    _DICT = {"a" * 60: _DICT, "b" * 60: _DICT}
pickled("dicts_that_are_shared", _DICT)


def safetensors(name: str, header: str) -> None:
    def make(folder: Path) -> list[str]:
        (folder / "net.safetensors").write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(8))
        return ["scan", "net.safetensors"]

    FILES[f"safetensors_{name}"] = make


def entry(shape: str) -> str:
    return '{"w":{"dtype":"F32","shape":' + shape + ',"data_offsets":[0,8]}}'


safetensors("of_many_axes", entry("[" + ",".join(["2"] * 100_000) + "]"))
safetensors("large_extents", entry("[" + ",".join([str(1 << 62)] * 60) + "]"))
safetensors("long_number", entry("[" + "9" * 100_000 + "]"))
safetensors("deep_lists", entry("[" * 50_000 + "]" * 50_000))
safetensors("float_number", entry("[1e999]"))


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def gguf(name: str, tensors: int, pairs: int, content: bytes) -> None:
    def make(folder: Path) -> list[str]:
        (folder / "net.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + content)
        return ["scan", "net.gguf"]

    FILES[f"gguf_{name}"] = make


_ARRAY = struct.pack("<IIQ", 9, 9, 1)
gguf("many_tensors", 1 << 60, 0, b"")
gguf("many_pairs", 0, 1 << 60, b"")
gguf("arrays_in_arrays", 0, 1, text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000)
gguf("array_of_nothing", 0, 1, text("a") + struct.pack("<IIQ", 9, 9, 1 << 40))
gguf("array_of_texts", 0, 1, text("a") + struct.pack("<IIQ", 9, 8, 1 << 40) + bytes(8) * 100)
gguf("large_extents", 1, 0, text("w") + struct.pack("<I4QIQ", 4, *[1 << 62] * 4, 0, 0))


# -- MXNet, exported programs -----------------------------------------------------------------------------------------------


def mxnet(name: str, op: str, *, times: int = 1, twice: bool = False, **attrs: str) -> None:
    def make(folder: Path) -> list[str]:
        nodes: list[dict[str, Any]] = [{"op": "null", "name": "data", "inputs": []}]
        for place in range(times):
            inputs = [[place, 0, 0], [place, 0, 0]] if twice else [[place, 0, 0]]
            nodes.append({"op": op, "name": f"n{place}", "attrs": attrs, "inputs": inputs})
        found = {"nodes": nodes, "arg_nodes": [0], "heads": [[times, 0, 0]], "attrs": {"mxnet_version": ["int", 10900]}}
        (folder / "net-symbol.json").write_text(json.dumps(found))
        return ["count", "net-symbol.json", "--input", "data:2x4"]

    FILES[f"mxnet_{name}"] = make


mxnet("split_into_many", "SliceChannel", num_outputs="1000000000", axis="0")
mxnet("split_by_sections", "_split_v2", sections="1000000000", axis="0", indices="()")
mxnet("doubling", "Concat", times=2000, twice=True, num_args="2", dim="0")
mxnet("tiles", "tile", reps="(" + "1000000000, " * 1000 + ")")
mxnet("more_axes", "expand_dims", times=3000, axis="0")
mxnet("deep_brackets", "transpose", axes="(" * 5000 + ")" * 5000)
mxnet("powers", "reshape", shape="(9**9**9**9,)")
mxnet("long_number", "reshape", shape="(" + "9" * 100_000 + ",)")
mxnet("repeats", "repeat", times=70, repeats="1000000000", axis="0")


def exported(name: str, size: str) -> None:
    """A symbolic size of an exported program, which is worked out alone: a whole program is long."""
    FILES[f"pt2_{name}"] = lambda _folder: ["size", size]


exported("powers", "9**9**9**9")
exported("tower_of_symbols", "s0**s0**s0**s0**s0")
exported("deep_brackets", "(" * 50_000 + "s0" + ")" * 50_000)
exported("long_number", "9" * 100_000)
exported("many_products", "*".join(["s0"] * 20_000))
exported("functions_in_functions", "Max(s0, " * 5_000 + "s0" + ")" * 5_000)


# -- traces ----------------------------------------------------------------------------------------------------------------


@explosion
def nsight_rows_that_share_pages(folder: Path) -> list[str]:
    """4,000 texts of 900 kB whose bytes are the same pages."""
    path, page = folder / "net.sqlite", 4096
    length = 489 + 220 * (page - 4) - 4
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA page_size = {page}")
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.execute("CREATE TABLE NVTX_EVENTS (start, end, text, textId, eventType, globalTid)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName)")
        database.execute("INSERT INTO StringIds VALUES (1, ?)", ("x" * length,))
    database.close()
    content = bytearray(path.read_bytes())
    root = 1  # pages from 0; the first table's is the second
    leaf = content[root * page : (root + 1) * page]
    (at,) = struct.unpack_from(">H", leaf, 8)
    cell = bytes(leaf[at:])[: len(leaf) - at]
    head = cell.index(b"\x01", 3)  # behind the length comes the number of the row
    children, per_leaf, rows = 500, 8, 0
    pages = []
    for _ in range(children):
        body, places, end = bytearray(page), [], page
        for _ in range(per_leaf):
            rows += 1
            own = cell[:head] + varint_of_sqlite(rows) + cell[head + 1 :]
            end -= len(own)
            body[end : end + len(own)] = own
            places.append(end)
        body[:8] = struct.pack(">BHHHB", 13, 0, per_leaf, end, 0)
        body[8 : 8 + 2 * per_leaf] = struct.pack(f">{per_leaf}H", *places)
        pages.append(bytes(body))
    first = len(content) // page + 1
    body, places, end = bytearray(page), [], page
    for place in range(children - 1):
        own = struct.pack(">I", first + place) + varint_of_sqlite((place + 1) * per_leaf)
        end -= len(own)
        body[end : end + len(own)] = own
        places.append(end)
    body[:12] = struct.pack(">BHHHBI", 5, 0, children - 1, end, 0, first + children - 1)
    body[12 : 12 + 2 * len(places)] = struct.pack(f">{len(places)}H", *places)
    content[root * page : (root + 1) * page] = body
    content += b"".join(pages)
    struct.pack_into(">I", content, 28, len(content) // page)
    path.write_bytes(content)
    return ["analyze", "net.sqlite"]


@explosion
def nsight_labels_that_are_no_texts(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "labels.sqlite") as database:
        database.execute("CREATE TABLE StringIds (id, value)")
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(1, 7), (2, b"\xff"), (b"\xff", "x"), (None, None)]
        )
        database.execute("CREATE TABLE ENUM_CUDA_MEM_KIND (id, label)")
        database.executemany("INSERT INTO ENUM_CUDA_MEM_KIND VALUES (?, ?)", [(1, 7), (2, b"\xff"), (b"\xff", 1.5)])
        columns = "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind"
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({columns})")
        row = (0, 10, b"\xff", "x", b"\xff", b"\xff", "y", b"\xff", 1, 2)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, graphId)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 10, 0, ?)", (b"\xff",))
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, demangledName)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 10, 0, 1)")
    database.close()
    return ["analyze", "labels.sqlite"]


def varint_of_sqlite(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number >> 7 | 0x80, number & 0x7F])


# -- the process that reads -------------------------------------------------------------------------------------------------


def reading(folder: Path, name: str) -> dict[str, Any]:
    """Read a file in a child: its exit code, what it said, and what it took."""
    from peak_memory import _status_bytes

    words = FILES[name](folder)
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as stream:
            outcome = stream.read()
        status = os.waitpid(child, 0)[1]
        return {"status": status, **(json.loads(outcome) if outcome else {})}
    os.close(read)
    resource.setrlimit(resource.RLIMIT_CPU, (8, 9))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (2 << 30), mapped + (2 << 30)))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, began = _status_bytes("VmRSS:"), time.process_time()
    os.chdir(folder)
    from opcost.cli.main import run

    said = io.StringIO()
    sys.stdout, sys.stderr = io.StringIO(), said
    try:
        code: Any = run(words) if words[0] != "size" else sized(words[1])
    except BaseException as exc:  # noqa: BLE001 - whatever it is, it is reported
        code = repr(exc)
    spent, grown = time.process_time() - began, _status_bytes("VmHWM:") - before
    outcome = json.dumps({"code": code, "said": said.getvalue()[-600:], "seconds": spent, "bytes": grown})
    os.write(write, outcome.encode())
    os._exit(0)


def sized(text: str) -> int:
    from opcost.core.parsing import Bad
    from opcost.frontends.pt2.sizes import evaluate

    try:
        evaluate(text, {"s0": 1 << 40})
    except Bad as exc:
        print(exc, file=sys.stderr)
        return 2
    return 0


def main(folder: Path) -> None:
    from opcost.cli.main import run

    os.chdir(folder)
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    for each in ("onnx_tiles", "script_squares", "safetensors_large_extents", "gguf_many_pairs", "mxnet_tiles"):
        run(FILES[each](folder))  # what reading loads is loaded here, and not by each child
    sys.stdout, sys.stderr = kept
    for line in sys.stdin:
        print(json.dumps(reading(folder, line.strip())), flush=True)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
    main(Path(sys.argv[1]).resolve())
