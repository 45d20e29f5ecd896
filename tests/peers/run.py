"""Run the peers' own test suites with only the import changed, and print a table of how many pass.

    python tests/peers/run.py [--sources FOLDER] [PEER ...]

A suite is taken from FOLDER/PEER, where a checkout of the peer's repository may lie, or else from the source archive of the
registry (`pip download --no-binary :all: --no-deps`), where it has its tests in it. Needs the packages that the suite imports.
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
    tests: tuple[str, ...]
    theirs: str
    """A regular expression for what is imported."""
    ours: str


PEERS = (
    Peer(
        "fvcore", "fvcore==0.1.5.post20221221",
        (
            "tests/test_flop_count.py",
            "tests/test_activation_count.py",
            "tests/test_jit_model_analysis.py",
            "tests/test_param_count.py",  # test_print_model_statistics is about private functions
        ),
        r"\bfvcore\.nn\b", "opcost.compat.fvcore",
    ),
    Peer("mmengine", "mmengine==0.10.7", ("tests/test_analysis",), r"\bmmengine\.analysis\b", "opcost.compat.mmengine"),
    Peer("ptflops", "ptflops==0.7.5", ("tests",), r"\b(?<=from )ptflops\b", "opcost.compat.ptflops"),
    Peer("thop", "thop", ("tests",), r"\b(?<=from )thop\b", "opcost.compat.thop"),
    Peer("torchinfo", "torchinfo==1.8.0", ("tests",), r"\b(?<=from )torchinfo\b", "opcost.compat.torchinfo"),
    Peer(
        "torchsummary", "torchsummary==1.5.1", ("torchsummary/tests/unit_tests/torchsummary_test.py",),
        r"\b(?<=from )torchsummary(?= import)", "opcost.compat.torchsummary",
    ),
    Peer("torchprofile", "torchprofile==0.1.0", ("tests",), r"\b(?<=from )torchprofile\b", "opcost.compat.torchprofile"),
)  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, help="a folder with checkouts of the peers' repositories, by name")
    parser.add_argument("--failures", action="store_true", help="name the tests that fail")
    parser.add_argument("peers", nargs="*")
    told = parser.parse_args()
    print("| peer | passed | of |\n|---|---|---|")
    for peer in PEERS:
        if told.peers and peer.name not in told.peers:
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / peer.name
            found = _fetch(peer, told.sources, place)
            passed, failed = _run(peer, place) if found else ([], [])
        shown = f"{len(passed)} | {len(passed) + len(failed)}" if found else "no tests in the archive | "
        print(f"| {peer.name} | {shown} |", flush=True)
        if told.failures:
            for name in failed:
                print(f"    {name}")


def _fetch(peer: Peer, sources: Path | None, place: Path) -> bool:
    """Put the peer's sources in a place, with their imports changed; says whether its tests are among them."""
    if sources is not None and (sources / peer.name).is_dir():
        shutil.copytree(sources / peer.name, place, ignore=shutil.ignore_patterns(".git"))
    elif not _download(peer, place):
        return False
    if not all((place / tests).exists() for tests in peer.tests):
        return False
    for file in _files(peer, place):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(peer.theirs, peer.ours, text), encoding="utf-8")
    return True


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


def _run(peer: Peer, place: Path) -> tuple[list[str], list[str]]:
    """The names of the tests that passed and of those that did not; skipped ones are neither."""
    results = place / "results.xml"
    pattern = [
        "-o",
        "python_files=*test*.py",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--continue-on-collection-errors",
    ]
    tests = [str(place / tests) for tests in peer.tests]
    command = [sys.executable, "-m", "pytest", "-q", *pattern, f"--junitxml={results}", f"--rootdir={place}", *tests]
    subprocess.run(command, cwd=place, capture_output=True, check=False)
    passed, failed = [], []
    for case in ET.parse(results).getroot().iter("testcase"):
        told = {child.tag for child in case}
        name = f"{case.get('classname')}.{case.get('name')}"
        if "failure" in told or "error" in told:
            failed.append(name)
        elif "skipped" not in told:
            passed.append(name)
    return passed, failed


if __name__ == "__main__":
    main()
