"""What modules take and give where a file names no calls of modules."""

from __future__ import annotations

from dataclasses import replace

from tests.shared.page_subjects import report

from opcost.core.graph import TensorSpec
from opcost.core.report import Report
from opcost.views.html.interfaces import Interface, interfaces


def chain() -> Report:
    """Two blocks of three layers of two operators, each of which reads what the one before it made: value n of n elements."""
    plain = report(blocks=2, ops=2)
    rows = [row._replace(outs=(TensorSpec((row.op.id + 1,)),)) for row in plain.rows]
    modules = tuple(replace(module, inputs=(), outputs=()) for module in plain.modules)
    whole = TensorSpec((99,))
    return replace(plain, rows=rows, modules=modules, inputs=(("x", whole),), input_values=(0,), output_values=(12,))


def sizes(specs: tuple[TensorSpec, ...]) -> list[int]:
    return [spec.shape[0] for spec in specs]


def test_a_module_takes_what_others_made_and_gives_what_others_read() -> None:
    found = interfaces(chain())
    # Operator n reads value n and makes value n + 1: six of them in each block, two in each layer.
    assert [sizes(specs) for specs in found["block0"]] == [[99], [6]]
    assert [sizes(specs) for specs in found["block1"]] == [[6], [12]]
    assert [sizes(specs) for specs in found["block1.layer1"]] == [[8], [10]]
    # A value within a block is none of its own; the model has its input and its output.
    assert [sizes(specs) for specs in found[""]] == [[99], [12]]


def test_calls_of_modules_are_known_better() -> None:
    plain = report(blocks=1)
    module = plain.modules[0]
    assert interfaces(plain)[module.path] == Interface(module.inputs, module.outputs)
