"""Run the peers' own test suites twice, as they are and with only the import changed, and print how many pass.

    python tests/peers/run.py [--sources FOLDER] [PEER ...]

A suite is taken from FOLDER/PEER, a checkout of the peer's repository, or else from the source archive of the registry, where
that contains tests; where it does not, the table names the repository and the tag to check out. A test that the original does
not pass here (it may need a GPU, a network or another version) is no measure, so both numbers are shown. Needs the packages
that a suite imports.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET


class Peer(NamedTuple):
    """One suite: the files that count, and the one change that is made to their imports."""

    name: str
    archive: str
    """What the registry calls it; empty where it has no source archive with tests."""
    checkout: str
    """Its repository, and the tag whose tests are meant."""
    tests: tuple[str, ...]
    theirs: str
    """A regular expression for what is imported."""
    ours: str


PEERS = (
    Peer(
        "fvcore", "", "facebookresearch/fvcore at v0.1.5.post20221221",
        (
            "tests/test_flop_count.py",
            "tests/test_activation_count.py",
            "tests/test_jit_model_analysis.py",
            "tests/test_param_count.py",  # test_print_model_statistics is about private functions
        ),
        r"\bfvcore\.nn\b", "opcost.compat.fvcore",
    ),
    Peer(
        "mmengine", "", "open-mmlab/mmengine at v0.10.7",
        ("tests/test_analysis",), r"\bmmengine\.analysis\b", "opcost.compat.mmengine",
    ),
    Peer(
        "ptflops", "", "sovrasov/flops-counter.pytorch at v0.7.5",
        ("tests",), r"\b(?<=from )ptflops\b", "opcost.compat.ptflops",
    ),
    Peer("thop", "", "Lyken17/pytorch-OpCounter at master", ("tests",), r"\b(?<=from )thop\b", "opcost.compat.thop"),
    Peer("torchinfo", "", "TylerYep/torchinfo at v1.8.0", ("tests",), r"\b(?<=from )torchinfo\b", "opcost.compat.torchinfo"),
    Peer(
        "torchinfo_xl", "", "the repository of torchinfo_xl",
        ("tests",), r"\b(?<=from )torchinfo_xl\b", "opcost.compat.torchinfo",
    ),
    Peer(
        "torchsummary", "", "sksq96/pytorch-summary at master", ("torchsummary/tests/unit_tests/torchsummary_test.py",),
        r"\b(?<=from )torchsummary(?= import)", "opcost.compat.torchsummary",
    ),
    Peer(
        "torchprofile", "torchprofile==0.1.0", "zhijian-liu/torchprofile at v0.1.0",
        ("tests",), r"\b(?<=from )torchprofile\b", "opcost.compat.torchprofile",
    ),
    Peer(
        "flop_counter", "", "pytorch/pytorch at v2.13.0",
        ("test/test_flop_counter.py",), r"\btorch\.utils\.flop_counter\b", "opcost.compat.flop_counter",
    ),
    Peer(
        "lightning", "", "Lightning-AI/pytorch-lightning at 2.6.6",
        ("tests/tests_pytorch/utilities/test_model_summary.py", "tests/tests_fabric/utilities/test_throughput.py"),
        r"\b(?<=from )lightning\.(?:pytorch\.utilities\.model_summary\.model_summary|fabric\.utilities\.throughput)(?= import)",
        "opcost.compat.lightning",
    ),
)  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, help="a folder with checkouts of the peers' repositories, by name")
    parser.add_argument(
        "--failures", action="store_true", help="name the tests that the original passes and opcost does not"
    )
    parser.add_argument("peers", nargs="*")
    options = parser.parse_args()
    print("| peer | tests | the original passes | opcost passes |\n|---|---|---|---|")
    for peer in PEERS:
        if options.peers and peer.name not in options.peers:
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / peer.name
            if not _fetch(peer, options.sources, place):
                print(f"| {peer.name} | check out {peer.checkout} | | |", flush=True)
                continue
            original = _run(peer, place)
            _change_imports(peer, place)
            ours = _run(peer, place)
        tests = original.keys() | ours.keys()
        counts = [sum(results.values()) for results in (original, ours)]
        print(f"| {peer.name} | {len(tests)} | {counts[0]} | {counts[1]} |", flush=True)
        if options.failures:
            for name in sorted(name for name, passed in original.items() if passed and not ours.get(name)):
                print(f"    {name}")


def _fetch(peer: Peer, sources: Path | None, place: Path) -> bool:
    """Put the peer's sources into a folder; returns whether its tests are among them."""
    if sources is not None and (sources / peer.name).is_dir():
        shutil.copytree(sources / peer.name, place, ignore=shutil.ignore_patterns(".git"))
    elif not peer.archive or not _download(peer, place):
        return False
    return all((place / tests).exists() for tests in peer.tests)


def _change_imports(peer: Peer, place: Path) -> None:
    for file in _files(peer, place):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(peer.theirs, peer.ours, text), encoding="utf-8")


def _download(peer: Peer, place: Path) -> bool:
    archives = place.with_suffix(".archive")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest"]
    if subprocess.run([*command, str(archives), peer.archive], capture_output=True, check=False).returncode:
        return False
    with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
        archive.extractall(archives / "unpacked", filter="data")
    next((archives / "unpacked").iterdir()).rename(place)
    return True


def _files(peer: Peer, place: Path) -> list[Path]:
    return [
        file
        for tests in peer.tests
        for file in ([place / tests] if tests.endswith(".py") else (place / tests).rglob("*.py"))
    ]


def _run(peer: Peer, place: Path) -> dict[str, bool]:
    """Whether each test passed, by its name, so that one that two files import counts once; skipped ones are left out."""
    results = place / "results.xml"
    results.unlink(missing_ok=True)
    options = "-q -o python_files=*test*.py -o addopts= -p no:cacheprovider -p no:xdist --continue-on-collection-errors".split()
    tests = [str(place / tests) for tests in peer.tests]
    command = [sys.executable, "-m", "pytest", *options, f"--junitxml={results}", f"--rootdir={place}", *tests]
    subprocess.run(command, cwd=place, capture_output=True, check=False)
    found: dict[str, bool] = {}
    for case in ET.parse(results).getroot().iter("testcase") if results.exists() else ():
        outcome = {child.tag for child in case}
        if "skipped" not in outcome:
            found[f"{case.get('classname')}.{case.get('name')}"] = not outcome & {"failure", "error"}
    return found


if __name__ == "__main__":
    main()
