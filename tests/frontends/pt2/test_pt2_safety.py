"""A .pt2 file is data: nothing in it is run, however it was forged, and PyTorch is not even imported."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from torch import nn

import opcost
from opcost.errors import InputError, SourceError

MARK = "OPCOST_TEST_RAN"
CODE = f"import os; os.environ[{MARK!r}] = '1'"
"""What a file tries to run."""
EVIL = f"exec({CODE!r})"
MACS = 2 * 4 * 3

Rewrite = Callable[..., Path]
Model = dict[str, Any]


class Runs:
    """Unpickling this runs something."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (CODE,))


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """No code of the file, none of torch's entry points to it, no file beside the ones that the test makes."""
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    assert MARK not in os.environ
    assert all(path.suffix == ".pt2" for path in tmp_path.iterdir())


def refused(path: Path, match: str) -> None:
    with pytest.raises(SourceError, match=match):
        opcost.count(path, shapes=(2, 4))


def graph_of(model: Model) -> Any:
    return model["graph_module"]["graph"]


def test_the_program_itself_is_read(program: Path, rewritten: Rewrite) -> None:
    assert opcost.count(program, shapes=(5, 4)).totals.macs == 5 * 4 * 3
    assert opcost.count(rewritten(program, lambda name, content: content)).totals.macs == MACS


def test_a_program_is_read_where_torch_cannot_be_imported(program: Path, rewritten: Rewrite) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "import opcost; report = opcost.count(sys.argv[1]); print(report.totals.macs, report.modules[0].type)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(program)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(MACS), "Linear"]


# -- what was code to torch's reader ------------------------------------------------------------------------------------


def test_pickled_inputs_are_not_opened(program: Path, rewritten: Rewrite) -> None:
    buffer = io.BytesIO()
    torch.save(((Runs(),), {}), buffer)
    evil = buffer.getvalue()
    path = rewritten(program, lambda name, content: evil if "sample_inputs" in name else content)
    assert opcost.count(path).totals.macs == MACS


def test_pickled_weights_are_not_opened(program: Path, rewritten: Rewrite) -> None:
    buffer = io.BytesIO()
    torch.save(Runs(), buffer)

    def change(name: str, content: bytes) -> bytes:
        if name.endswith("weight_0"):
            return buffer.getvalue()
        if name.endswith("model_weights_config.json"):
            config = json.loads(content)
            for entry in config["config"].values():
                entry["use_pickle"] = True
            return json.dumps(config).encode()
        return content

    assert opcost.count(rewritten(program, change)).totals.macs == MACS


def test_pickled_constants_are_not_opened(program: Path, rewritten: Rewrite) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("model_constants_config.json"):
            return content
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        return json.dumps({"config": {"evil": entry}}).encode()

    path = rewritten(program, change, **{"data/constants/opaque_obj_0": pickle.dumps(Runs())})
    assert opcost.count(path).totals.macs == MACS


def test_compiled_libraries_are_refused(program: Path, rewritten: Rewrite) -> None:
    evil = {"data/aotinductor/model/model.wrapper.so": b"\x7fELF"}
    refused(rewritten(program, lambda name, content: content, **evil), "compiled code")


@pytest.mark.parametrize(
    "text",
    [
        EVIL,
        "__import__('os').getcwd()",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "open('x')",
        "s0.__class__",
        "Max(s0, key=print)(1)",
        "1 if s0 else 2",
        "s0 +",
        "",
        "'s0'",
        "Symbol",
        "()",
    ],
)
def test_sizes_may_only_be_arithmetic(program: Path, in_model: Rewrite, text: str) -> None:
    def change(model: Model) -> None:
        graph_of(model)["tensor_values"]["linear"]["sizes"][0]["as_expr"]["expr_str"] = text

    refused(in_model(program, change), "not an expression of sizes")


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9",
        "Pow(9, Pow(9, 9))",
        "1" + "0" * 1000,
        "(" * 1000 + "1" + ")" * 1000,
        "2*" * 400 + "1",
        "LShift(1, 9**9)",
        "1/0",
    ],
)
def test_sizes_that_are_too_large_are_refused_at_once(program: Path, in_model: Rewrite, text: str) -> None:
    def change(model: Model) -> None:
        graph_of(model)["tensor_values"]["linear"]["sizes"][0]["as_expr"]["expr_str"] = text

    path = in_model(program, change)
    start = time.process_time()
    refused(path, "changed.pt2")
    assert time.process_time() - start < 1


def test_a_number_of_a_million_digits_is_refused_at_once(program: Path, rewritten: Rewrite) -> None:
    def change(name: str, content: bytes) -> bytes:
        return content.replace(b'"dtype": 7', b'"dtype": ' + b"7" * 10**6, 1) if "model.json" in name else content

    path = rewritten(program, change)
    start = time.process_time()
    refused(path, "1000000 digits")
    assert time.process_time() - start < 1


NAMES: dict[str, Callable[[Model], None]] = {
    "an argument": lambda m: m["graph_module"]["module_call_graph"][0]["signature"].update(
        forward_arg_names=[f"input={EVIL}"]
    ),
    "the tree of inputs": lambda m: m["graph_module"]["module_call_graph"][0]["signature"].update(in_spec=EVIL),
    "a named tuple": lambda m: m["graph_module"].update(treespec_namedtuple_fields={EVIL: {"field_names": [EVIL]}}),
    "a parameter": lambda m: m["graph_module"]["signature"]["input_specs"][0]["parameter"].update(parameter_name=EVIL),
    "a node": lambda m: graph_of(m)["nodes"][-1].update(name=EVIL),
    "an overload": lambda m: graph_of(m)["nodes"][-1]["metadata"].update(torch_fn=EVIL),
    "a trace of calls": lambda m: graph_of(m)["nodes"][-1]["metadata"].update(stack_trace=EVIL),
    "a guard": lambda m: m.update(guards_code=[EVIL]),
    "a verifier": lambda m: m.update(verifiers=[EVIL]),
}


@pytest.mark.parametrize("where", NAMES)
@pytest.mark.parametrize("without_modules", [False, True])
def test_texts_are_only_texts(program: Path, in_model: Rewrite, where: str, without_modules: bool) -> None:
    """Without `nn_module_stack` torch cannot put the modules together again, and writes and runs Python instead."""

    def change(model: Model) -> None:
        NAMES[where](model)
        for node in graph_of(model)["nodes"] if without_modules else ():
            node["metadata"].pop("nn_module_stack", None)

    assert opcost.count(in_model(program, change), shapes=(2, 4)).totals.macs == MACS


def test_a_name_that_is_code_is_a_name(program: Path, in_model: Rewrite) -> None:
    evil = f"input={EVIL}"

    def change(model: Model) -> None:
        text = json.dumps(graph_of(model)).replace('"input"', json.dumps(evil))
        model["graph_module"]["graph"] = json.loads(text)
        for spec in model["graph_module"]["signature"]["input_specs"]:
            if "user_input" in spec:
                spec["user_input"]["arg"]["as_tensor"]["name"] = evil
        graph_of(model)["nodes"][-1]["inputs"][0]["name"] = "input"

    assert opcost.count(in_model(program, change)).inputs[0][0] == evil


def test_control_characters_of_a_name_do_not_reach_the_terminal(program: Path, in_model: Rewrite) -> None:
    def change(model: Model) -> None:
        for node in graph_of(model)["nodes"]:
            node["metadata"]["nn_module_stack"] = "L__self__,,evil.\x1b[31mNet\x07;L__self__a,\x1b]0;a,x.Y\x1b[2J"

    report = opcost.count(in_model(program, change))
    assert "Net" in str(report)
    assert not {"\x1b", "\x07"} & set(str(report))


@pytest.mark.parametrize("target", ["torch.hub.load", "os.system", "builtins.exec", "torch.load", ""])
def test_only_operators_may_be_called(program: Path, in_model: Rewrite, target: str) -> None:
    def change(model: Model) -> None:
        graph_of(model)["nodes"][-1]["target"] = target

    refused(in_model(program, change), "not an operator")


def test_an_operator_with_a_side_effect_is_a_row_and_never_a_call(program: Path, in_model: Rewrite) -> None:
    def change(model: Model) -> None:
        node = graph_of(model)["nodes"][-1]
        node["target"] = "torch.ops.aten.from_file.default"
        node["inputs"] = [
            {"name": "filename", "arg": {"as_string": "made"}, "kind": 1},
            {"name": "shared", "arg": {"as_bool": True}, "kind": 1},
            {"name": "size", "arg": {"as_int": 24}, "kind": 1},
        ]

    report = opcost.count(in_model(program, change))
    assert [(row.op.raw, row.op.kind) for row in report.rows if row.op.kind != "view"] == [
        ("aten::from_file", "create")
    ]
    assert not Path("made").exists()


def test_an_operator_of_an_unknown_library_is_unknown(program: Path, in_model: Rewrite) -> None:
    def change(model: Model) -> None:
        graph_of(model)["nodes"][-1]["target"] = "torch.ops.unknown.deletes_files.default"

    report = opcost.count(in_model(program, change))
    assert [found.raw for found in report.coverage.uncounted] == ["unknown::deletes_files"]


# -- archives -----------------------------------------------------------------------------------------------------------


def test_two_files_of_one_name_are_refused(program: Path, rewritten: Rewrite) -> None:
    path = rewritten(program, lambda name, content: content)
    with ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(next(name for name in archive.namelist() if name.endswith("model.json")), "{}")
    refused(path, "two files of the same name")


def test_an_archive_of_several_programs_is_refused(program: Path, rewritten: Rewrite) -> None:
    refused(rewritten(program, lambda name, content: content, **{"models/other.json": b"{}"}), "2 programs")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x80\x04K\x01."])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(content)
    with pytest.raises(opcost.OpcostError):
        opcost.count(path)


def deflated(path: Path, name: str, pieces: Any) -> Path:
    with ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w", force_zip64=True) as member:
        for piece in pieces:
            member.write(piece)
    return path


@pytest.mark.parametrize(
    ("piece", "times"),
    [
        (b" " * (1 << 20), 400),
        (b"[]," * (1 << 18), 100),
        (b'"ab",' * (1 << 18), 100),
        (b"[" * (1 << 20), 100),
    ],
)
def test_a_description_that_inflates_without_end_takes_little_memory_and_time(
    tmp_path: Path, piece: bytes, times: int
) -> None:
    path = deflated(tmp_path / "bomb.pt2", "bomb/models/model.json", (b"[", *[piece] * times))
    assert path.stat().st_size < 8 << 20
    tracemalloc.start()
    start = time.process_time()
    try:
        refused(path, "more than 64 MiB")
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 5


def test_a_size_that_the_archive_lies_about_is_found_by_reading(tmp_path: Path) -> None:
    path = deflated(tmp_path / "bomb.pt2", "bomb/models/model.json", [b" " * (1 << 20)] * 200)
    size = (200 << 20).to_bytes(8, "little")
    path.write_bytes(
        path.read_bytes().replace(size, (100).to_bytes(8, "little")).replace(size[:4], (100).to_bytes(4, "little"))
    )
    tracemalloc.start()
    try:
        refused(path, "bomb.pt2 is not an exported program")
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("piece", [b"[],", b"1000,", b'"ab",', b'{"a":1},'])
def test_many_small_parts_take_little_memory(tmp_path: Path, piece: bytes) -> None:
    path = deflated(
        tmp_path / "parts.pt2",
        "parts/models/model.json",
        [b"[", *[piece * 100_000] * ((60 << 20) // (len(piece) * 100_000))],
    )
    tracemalloc.start()
    try:
        refused(path, "parts")
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_inflate_without_bound_are_refused(program: Path, tmp_path: Path, packing: int) -> None:
    path = tmp_path / "packed.pt2"
    with ZipFile(program) as old, ZipFile(path, "w", packing) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    refused(path, "packed in an unusual way")


def test_weights_are_not_read(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "packed.pt2"
    with ZipFile(program) as old, ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, bytes(1 << 28) if name.endswith("weight_0") else old.read(name))
    tracemalloc.start()
    try:
        assert opcost.count(path).totals.macs == MACS
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_nesting_without_end_is_refused(program: Path, in_model: Rewrite, rewritten: Rewrite) -> None:
    deep = b'{"graph_module":' * 10_000
    refused(
        rewritten(program, lambda name, content: deep if "model.json" in name else content), "nested|not an exported"
    )

    def change(model: Model) -> None:
        node = graph_of(model)["nodes"][-1]
        for _ in range(40):
            wrapped = json.loads(json.dumps(graph_of(model)))
            wrapped["nodes"] = [node]
            node = {
                "target": "torch.ops.higher_order.wrap",
                "inputs": [{"name": "", "arg": {"as_graph": {"name": "g", "graph": wrapped}}, "kind": 1}]
                + [{"name": "", "arg": given, "kind": 1} for given in wrapped["inputs"]],
                "outputs": node["outputs"],
                "metadata": {},
            }
        graph_of(model)["nodes"] = [node]

    refused(in_model(program, change), "nested more than 16 deep")


def test_layers_without_number_do_not_take_for_ever(saved: Callable[..., Path], in_model: Rewrite) -> None:
    def change(model: Model) -> None:
        for argument in graph_of(model)["nodes"][-1]["inputs"]:
            if argument["name"] == "num_layers":
                argument["arg"] = {"as_int": 10**12}

    path = in_model(saved(nn.LSTM(4, 3), torch.ones(2, 1, 4)), change)
    start = time.process_time()
    assert [found.raw for found in opcost.count(path).coverage.uncounted] == ["aten::lstm"]
    assert time.process_time() - start < 1


def test_a_tensor_larger_than_any_memory_is_refused(program: Path, in_model: Rewrite) -> None:
    def change(model: Model) -> None:
        graph_of(model)["tensor_values"]["linear"]["sizes"] = [{"as_int": 1 << 62}, {"as_int": 1 << 62}]

    refused(in_model(program, change), "more than memory can address")


@pytest.mark.parametrize("version", [5, 9, "8", None])
def test_another_version_of_the_format_is_refused_by_its_number(program: Path, in_model: Rewrite, version: Any) -> None:
    def change(model: Model) -> None:
        model["schema_version"]["major"] = version

    refused(in_model(program, change), f"format {version}|'major'")


@pytest.mark.parametrize("options", [{"backward": True}, {"real": True}, {"mode": "train"}, {"optimizer": True}])
def test_options_that_need_a_run_are_refused(program: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="read and not run"):
        opcost.count(program, **options)


def test_a_program_cannot_be_profiled(program: Path) -> None:
    with pytest.raises(opcost.OpcostError, match="cannot be run"):
        opcost.profile(program)


def test_the_command_line_says_so_in_one_line(program: Path, in_model: Rewrite, opcost_command: Any) -> None:
    done = opcost_command("count", in_model(program, lambda model: graph_of(model).pop("tensor_values")))
    assert (done.code, done.out) == (2, "")
    assert "tensor_values" in done.err
    assert "Traceback" not in done.err
