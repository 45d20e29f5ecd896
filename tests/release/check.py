"""What would be released: built, looked through, installed into new environments, and tried with the README's commands.

python tests/release/check.py [--site FOLDER]: with a folder of installed packages the new environments read torch there, instead
of getting a copy each.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "release"
SHIPPED = ("README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "mkdocs.yml")
FOLDERS = ("src/opcost", "tests", "docs", "examples", "requirements")
"""What a source archive must hold to be built, tested and documented."""


class Wrong(Exception):
    """Something that must not be released."""


def main() -> None:
    """Build, look, install, run."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--site", type=Path, help="installed packages with torch")
    site = words.parse_args().site
    archive, wheel = build()
    look_at_metadata(wheel)
    look_at_wheel(wheel)
    look_at_archive(archive)
    for made in (wheel, archive):
        with tempfile.TemporaryDirectory(prefix="opcost-release-") as folder:
            python = installed(made, Path(folder), site)
            tried(python, Path(folder))
        say(f"{made.name}: installed, and the README's commands ran")


def build() -> tuple[Path, Path]:
    """The source archive and the wheel that is made of it."""
    for old in BUILT.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", BUILT, ROOT)
    (archive,), (wheel,) = list(BUILT.glob("*.tar.gz")), list(BUILT.glob("*.whl"))
    run(sys.executable, "-m", "twine", "check", "--strict", archive, wheel)
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel)
    return archive, wheel


def look_at_metadata(wheel: Path) -> None:
    """Version, licence, readme and commands."""
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        meta = Parser().parsestr(content.read(next(name for name in names if name.endswith("/METADATA"))).decode())
        points = content.read(next(name for name in names if name.endswith("/entry_points.txt"))).decode()
    version = loaded(ROOT / "src/opcost/version.py").__version__
    heading = f"\n## {version} ("
    expect(meta["Name"] == "opcost" and meta["Version"] == version, f"it calls itself {meta['Name']} {meta['Version']}")
    expect(meta["License-Expression"] == "Apache-2.0" and meta["Requires-Python"] == ">=3.10", "licence or Python")
    expect("text/markdown" in meta["Description-Content-Type"], "the readme is not shown as Markdown")
    expect("opcost = opcost.cli.main:main" in points, "the command is missing")
    expect(heading in (ROOT / "CHANGELOG.md").read_text("utf-8"), f"the changelog has no heading for {version}")


def look_at_wheel(wheel: Path) -> None:
    """Every file of the package, and no other."""
    with zipfile.ZipFile(wheel) as content:
        found = {name for name in content.namelist() if ".dist-info/" not in name}
    own = {path.relative_to(ROOT / "src").as_posix() for path in tracked("src/opcost")}
    expect(found == own, f"missing {sorted(own - found)[:9]}, too much {sorted(found - own)[:9]}")


def look_at_archive(archive: Path) -> None:
    """What building, testing and documenting take."""
    with tarfile.open(archive) as content:
        found = {name.partition("/")[2] for name in content.getnames()}
    wanted = {*SHIPPED, *(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in tracked(folder))}
    expect(wanted <= found, f"the source archive lacks {sorted(wanted - found)[:9]}")


def installed(made: Path, folder: Path, site: Path | None) -> Path:
    """The interpreter of a new environment with what was made, and with torch."""
    run(sys.executable, "-m", "venv", folder / "env")
    python = folder / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, made)
    if site is None:
        run(*pip, "--requirement", ROOT / "requirements" / "torch.txt")
    else:
        (target,) = (folder / "env" / "lib").glob("python*/site-packages")
        (target / "torch.pth").write_text(f"{site.resolve()}\n", encoding="utf-8")
    return python


def tried(python: Path, folder: Path) -> None:
    """The marked commands of the README print what is under them, and the package is the one that was installed."""
    where = output(python, "-c", "import opcost; print(opcost.__file__)")
    expect(where.startswith(str(folder)), f"{where} is what runs")
    readme = loaded(ROOT / "tests/shared/marked_blocks.py")
    for block in readme.blocks((readme.README,)):
        printed = readme.run(block, folder, python)
        if block.output is not None:
            same = readme.without_versions(printed) == readme.without_versions(block.output)
            expect(same, f"{block.code}prints something else:\n{printed}")


def tracked(folder: str) -> list[Path]:
    """The files of a folder that belong to the project."""
    listed = output("git", "-C", ROOT, "ls-files", "-z", folder).split("\0")
    return [ROOT / name for name in listed if name.strip()]


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, env=clean(), cwd=ROOT)


def output(*words: object) -> str:
    done = subprocess.run(
        [str(word) for word in words], check=True, env=clean(), cwd=BUILT, text=True, stdout=subprocess.PIPE
    )
    return done.stdout


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def expect(right: bool, wrong: str) -> None:
    if not right:
        raise Wrong(wrong)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
