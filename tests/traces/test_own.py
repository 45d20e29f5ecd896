from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import opcost
from opcost.core.profile_schema import dumps
from opcost.errors import SourceError

DATA = Path(__file__).parent.parent / "data" / "traces"
SOURCES = [
    DATA / "kineto" / "cuda_fwd_stack.json.gz",
    DATA / "kineto" / "cuda_cudagraph.json.gz",
    DATA / "kineto" / "cpu_resnet18_fwdbwd_stack.json.gz",
    DATA / "onnxruntime" / "resnet_noopt_seq.json.gz",
    DATA / "mxnet" / "resnet18_hybrid.json.gz",
    DATA / "openvino" / "benchmark_average_counters_report.csv",
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_a_profile_of_any_format_survives_being_saved(tmp_path: Path, source: Path) -> None:
    profile = opcost.read_profile(source)
    plain, packed = tmp_path / "p.json", tmp_path / "p.json.gz"
    plain.write_text(dumps(profile), encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert opcost.read_profile(plain) == profile
    assert opcost.read_profile(packed) == profile


def test_a_saved_profile_that_was_cut_off_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(dumps(opcost.read_profile(SOURCES[0]))[:5000], encoding="utf-8")
    with pytest.raises(SourceError, match=r"p\.json.*cannot be read"):
        opcost.read_profile(path)
