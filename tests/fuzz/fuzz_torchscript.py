"""TorchScript archives, and ways to change their code and their pickles."""

from __future__ import annotations

import io
import random
import re
import zipfile
from pathlib import Path
from typing import Any

from fuzz_changes import NUMBERS, pickle_steps

DATA = Path(__file__).resolve().parents[1] / "data" / "torchscript"
SHAPES: dict[str, dict[str, Any]] = {
    "a_module_twice": {"shapes": [(3, 8)]},
    "attention": {"shapes": [(2, 5, 16)]},
    "chosen": {"shapes": [(2, 4)]},
    "convolutions": {"shapes": [(2, 3, 16, 16)]},
    "fused_attention": {"shapes": [(2, 5)], "dtypes": ["int64"]},
    "recurrent": {"shapes": [(5, 2, 4)]},
    "shapes": {"shapes": [(2, 4, 6, 6)]},
}
ODD = (
    "__import__('os').system('true')", "eval('1')", "(lambda: 0)()", "self", "None", "[]", "{}", "'x' * 10", "x if x else y",
    "-inf", "nan", "torch.mul(9, 9)", "[0] * 9999999999", "9 ** 9 ** 9 ** 9", "torch.pow(9, 999999999)", "torch.add(x, 1)",
    "(self).forward(x, )", "[[[[[[[[]]]]]]]]", "CONSTANTS.c0", "CONSTANTS.c99999", "ops.prim.NumToTensor(3)",
    "torch.size(x, 9)", "getattr(self, 'x')", "torch.unbind(torch.zeros([99999999]))", "torch.zeros([99999999999999])",
    "torch.split(x, 0)", "torch.chunk(x, 0)", "int(x)", "torch.view(x, [-1, -1])", "torch.slice(x, 0, 0, 9, 0)", "f'{x}'",
    "[i for i in x]", "await x", "x.y.z", "1_000", "b'x'", "...", "(" * 90 + ")" * 90, "-" * 3000 + "1", "torch." * 500 + "x",
    "not x", "x[0][0]", "x[::2]", "1 < 2 < 3", "range(99999999999)",
)  # fmt: skip
LINES = (
    "while True:\n      pass", "for i in range(999999999):\n      x = torch.mul(2, 2)",
    "for i in range(50):\n      x = torch.mul(x, x)", "import os", "del x", "return self", "raise x", "x, y = x", "x.y = 1",
    "global x", "def f(): pass", "class X: pass", "assert x", "with x: pass", "try: pass\n    except: pass",
    "l = []\n    for i in range(9):\n      _ = torch.append(l, l)", "\tx = 1", "x = y = z",
)  # fmt: skip


def models() -> list[tuple[bytes, dict[str, Any]]]:
    return [((DATA / f"{name}.pt").read_bytes(), given) for name, given in SHAPES.items()]


def changed_script(data: bytes, rng: random.Random) -> bytes:
    """Some members of the archive are changed, each in the way of its kind."""
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(found, "w") as new:
        names = old.namelist()
        chosen = {
            rng.choice([name for name in names if name.endswith((".py", ".pkl"))]) for _ in range(rng.choice((1, 1, 2)))
        }
        for name in names:
            content = old.read(name)
            if name in chosen:
                content = _code(content.decode(), rng).encode() if name.endswith(".py") else pickle_steps(content, rng)
            new.writestr(name, content)
    return found.getvalue()


def _code(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                lines.insert(at, "    " + rng.choice(LINES))
            case 3:
                numbers = list(re.finditer(r"\d+", lines[at]))
                if numbers:
                    spot = rng.choice(numbers)
                    lines[at] = lines[at][: spot.start()] + str(rng.choice(NUMBERS)) + lines[at][spot.end() :]
            case 4:
                names = list(re.finditer(r"\b[a-z_]\w*\b", lines[at]))
                if names:
                    spot = rng.choice(names)
                    word = rng.choice((rng.choice(names).group(), rng.choice(ODD)))
                    lines[at] = lines[at][: spot.start()] + word + lines[at][spot.end() :]
            case 5:
                before, equals, _ = lines[at].partition(" = ")
                if equals:
                    lines[at] = f"{before} = {rng.choice(ODD)}"
            case _:
                place = rng.randrange(len(lines[at]) + 1)
                lines[at] = (
                    lines[at][:place]
                    + rng.choice(("(", ")", "[", "]", ",", ".", "\\", "'", "\0", "\ud7ff", "#"))
                    + lines[at][place:]
                )
        text = "\n".join(lines)
    return text
