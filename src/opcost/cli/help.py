"""What `--help` adds to the options of a command: examples, and known names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "opcost count timm:resnet50                          what it costs",
        "opcost predict timm:resnet50 --device h200          how long it would take there",
        "opcost analyze trace.json.gz                        where the time of a run went",
        "opcost --install-completion                         commands and options after TAB",
    ),
    "count": (
        "opcost count timm:resnet50",
        "opcost count net.py:Net --input 1x3x224x224 --depth 2",
        "opcost count net.py:Net --input 8x128:int64 --backward --optimizer adamw --view memory",
        "opcost count model.onnx --by op --top 10 --columns op,module,macs,share",
        "opcost count hf:config.json --decode 1 --cache 4096 -o report.json",
        "opcost count report.json --by op --sort bytes --top 20 -o report.csv",
    ),
    "profile": (
        "opcost profile timm:resnet50 --batch 8 -o profile.json",
        "opcost profile net.py:Net --input 1x3x224x224 --device cuda --seconds 10",
        "opcost profile model.onnx --repeat 50",
    ),
    "predict": (
        "opcost predict timm:resnet50 --batch 8 --device h200",
        "opcost predict hf:config.json --dtype bf16 --batch 8 --prefill 1024 --generate 500",
        "opcost predict report.json --device a100 --by module",
    ),
    "calibrate": (
        "opcost calibrate -o mine.json",
        "opcost calibrate -o cpu.json --device cpu --seconds 60",
    ),
    "mfu": (
        "opcost mfu net.py:Net --input 8x1024:int64 --step-time 312ms --device h100",
        "opcost mfu report.json --step-time 41ms --device h200 --devices 8",
    ),
    "fit": (
        "opcost fit timm:resnet50 --memory 24GiB --backward --optimizer adamw",
        "opcost fit hf:config.json --device h100 --vary tokens",
    ),
    "sweep": (
        "opcost sweep timm:resnet50 --vary batch=1,2,4..256 --device h200",
        "opcost sweep hf:config.json --vary batch=1..64 --vary tokens=128..8192 -o sweep.csv",
    ),
    "view": (
        "opcost view timm:resnet50",
        "opcost view profile.json -o page.html",
        "opcost view net.py:Net --input 1x3x224x224 --serve",
    ),
    "scan": (
        "opcost scan path/to/folder",
        "opcost scan model.gguf --by type",
        "opcost scan model.safetensors --by tensor --sort size --top 20 --columns name,shape,size",
    ),
    "check": (
        "opcost check timm:resnet50 --max-macs 4.2G --max-params 26M",
        "opcost check timm:resnet50 --max-latency 2ms --device h200",
        "opcost check --config opcost.toml --baseline baseline.json",
    ),
    "analyze": (
        "opcost analyze trace.json.gz",
        "opcost analyze trace.json.gz --aggregate-by kind",
        "opcost analyze profile.json --where 'time > 1ms and kind == \"conv\"' --columns name,time,share,flops",
        "opcost analyze trace.json.gz --view breakdown",
        "opcost analyze traces/ --aggregate-by rank --device h200",
    ),
    "visualize": (
        "opcost visualize net.mge --log_path log",
        "opcost visualize timm:resnet50 --all",
    ),
    "compare": (
        "opcost compare timm:resnet18 timm:resnet50",
        "opcost compare a.json b.json --by module --quantity macs,params -o table.md",
        "opcost compare before.json net.py:Net --changes --fail-if 'macs>+1%'",
    ),
    "rules": (
        "opcost rules",
        "opcost rules attention",
    ),
    "doctor": ("opcost doctor",),
}
ON_DEVICES = ("count", "predict", "fit", "sweep", "mfu", "check", "compare", "view", "analyze")
"""Commands about a device, which need not be present."""
WIDTH = 100


def further_help(command: str) -> Iterator[str]:
    """Lines that follow the options: examples of the command, and the columns, kinds and quantities that it takes."""
    yield ""
    yield "Examples:"
    yield from (f"  {example}" for example in EXAMPLES.get(command, ()))
    for title, names in _names(command):
        yield ""
        yield f"{title}:"
        from textwrap import wrap

        yield from wrap(", ".join(names), WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _names(command: str) -> Iterator[tuple[str, Sequence[str]]]:
    if command == "count":
        from opcost.views.report import EVERY_BY, columns_of

        for by in EVERY_BY:
            yield f"Columns with --by {by}, for --columns and --sort", list(columns_of(by, 0))
    elif command == "scan":
        from opcost.views.scan import scan_columns

        yield "Columns, for --columns and --sort", list(scan_columns("tensor"))
    elif command == "analyze":
        from opcost.core.answer import Answer
        from opcost.core.kinds import KINDS
        from opcost.views.profile import answer_columns

        empty = Answer(meta={}, side="device", keys=(), lines=())
        yield "Columns, for --columns and --sort", list(answer_columns(empty))
        yield "Kinds, for --kind and --where", sorted(KINDS)
    elif command in ("check", "compare"):
        from opcost.core.quantity import QUANTITIES

        yield "Quantities", list(QUANTITIES)
    elif command == "rules":
        from opcost.rules import default_rules

        yield "Rules", sorted(default_rules())
    if command in ON_DEVICES:
        from opcost.core.devices import DEVICES

        yield "Devices, for --device", list(DEVICES)
