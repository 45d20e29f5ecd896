"""Whether an archive of PyTorch's holds code: a TorchScript archive does, an exported program and a checkpoint do not."""

from __future__ import annotations

from pathlib import Path

from opcost.core.archives import BadArchive, archive_in
from opcost.core.reading import opened


def holds_code(path: Path) -> bool:
    """By the names of its members; an archive that cannot be listed holds none."""
    try:
        with opened(path) as file, archive_in(file) as archive:
            return any("/code/" in name for name in archive.namelist())
    except BadArchive:
        return False
