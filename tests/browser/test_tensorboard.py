"""A log of `opcost visualize` in a real TensorBoard: it opens on the graph, a node shows its FLOPs, both colourings work."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from opcost.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed")
PATIENCE_MS = 60_000
STAGES = ("stem", "stage1", "stage2", "stage3", "stage4", "fc")
FILL = "shape => getComputedStyle(shape).fill"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a TensorBoard that shows a ResNet-18."""
    log = tmp_path_factory.mktemp("log")
    source = f"{ROOT}/examples/resnet18.py:ResNet18"
    assert run(["visualize", source, "--input", "1x3x224x224", "--log_path", str(log)]) == 0
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(log), "--port", "0", "--host", "127.0.0.1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        found = (re.search(r"at (http://\S+)", line) for line in server.stderr)
        yield next(match[1] for match in found if match is not None)
    finally:
        server.kill()
        server.communicate()


@pytest.fixture
def graph(browser: Any, address: str) -> Iterator[Any]:
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(address)
    node(page, "stage1").wait_for()
    yield page
    page.context.close()


def node(page: Any, name: str) -> Any:
    return page.locator(f'g.node[data-name="{name}"]')


def attribute(page: Any, name: str) -> Any:
    """A line of the panel beside the graph."""
    return page.locator("tf-node-info .attr-left", has_text=re.compile(f"^{name}$")).locator("xpath=../*[2]")


def redness(page: Any, colouring: str) -> dict[str, int]:
    """How deep each box is coloured; the more there is of it, the less green."""
    page.locator("tf-graph-controls paper-radio-button", has_text=colouring).click()
    page.wait_for_function(
        "colour => document.querySelector('tf-graph-dashboard').shadowRoot.querySelector('tf-graph-board').colorBy === colour",
        arg=colouring.lower().replace(" ", "_"),
    )
    page.wait_for_timeout(500)  # TensorBoard fades from one colour to the next
    fills = {name: node(page, name).locator(".nodeshape rect").first.evaluate(FILL) for name in STAGES}
    return {name: 255 - int(re.findall(r"\d+", fill)[1]) for name, fill in fills.items()}


def test_boxes_open_and_a_node_shows_its_flops(graph: Any) -> None:
    for box, inside in (("stem", "stem/0"), ("stem/0", "stem/0/convolution")):
        node(graph, box).first.dblclick()
        node(graph, inside).wait_for()
    graph.wait_for_timeout(1000)  # it moves there
    node(graph, "stem/0/convolution").locator(".nodeshape ellipse").click(force=True)  # an arrow may lie above
    macs = 64 * 112 * 112 * 3 * 7 * 7  # channels and places of the result, times those of the filter
    graph.get_by_text(f'{{"i":{2 * macs}}}').wait_for()
    assert attribute(graph, "flops").inner_text() == f'{{"i":{2 * macs}}}'
    assert attribute(graph, "macs").inner_text() == f'{{"i":{macs}}}'
    assert attribute(graph, "kind").inner_text() == '{"s":"conv"}'
    assert graph.get_by_text("64×3×7×7").count() == 2  # the weight, on its arrow and among the inputs


def test_the_report_is_on_the_page_behind_the_graph(graph: Any) -> None:
    tabs = graph.locator("[role=tab]:visible")
    assert [text.strip().upper() for text in tabs.all_inner_texts()] == ["GRAPHS", "TEXT"]
    tabs.nth(1).click()
    graph.get_by_text("11,689,512").wait_for()  # parameters of a ResNet-18


def test_boxes_are_coloured_by_flops_and_by_memory(graph: Any) -> None:
    graph.locator("tf-graph-controls paper-dropdown-menu").nth(1).click()
    graph.locator("tf-graph-controls paper-item:visible", has_text="cost").click()
    graph.locator("tf-graph-controls paper-radio-button:not([disabled])", has_text="Compute time").wait_for()
    work = redness(graph, "Compute time")
    assert max(work, key=work.__getitem__) == "stage1"  # 929 of 3,643 million FLOPs
    assert graph.get_by_text("929 ms").count() == 1
    assert work["stage1"] > work["stage2"] > work["stem"] > work["fc"]  # 929, 825, 242 and 1 million
    memory = redness(graph, "Memory")
    assert max(memory, key=memory.__getitem__) == "stage4"  # 8.39 million of 11.69 million parameters
    assert memory["stage4"] > memory["stage3"] > memory["fc"]  # 8.39, 2.10 and 0.51 million
