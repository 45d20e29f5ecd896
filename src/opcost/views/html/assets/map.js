// Treemap, icicle or flame view of the tree by a chosen quantity; a click chooses, a double click or Enter goes in.

import { flameAreas, icicleAreas, treemapAreas } from "./areas.js";
import { coloursOf, GREY, isWithin, quantityOf, tree } from "./data.js";
import { announce, chooser, draw, hideTip, make, showTip, switcher } from "./dom.js";
import { formatAs, formatShare } from "./format.js";
import { detailLines } from "./modules.js";
import { choose, chosenNode } from "./selection.js";
import { setState, state, whenChanged } from "./state.js";

const LETTER = 6.3;
// How high a level of a flame may be, as there is room.
const LOWEST = 20;
const HIGHEST = 32;
const MOSTLY = 0.8;
const SHAPES = ["treemap", "icicle", "flame"];

export function mapPanel() {
  const sized = tree.quantities.filter((quantity) => quantity.name !== tree.partial && tree.total[quantity.name][0] > 0);
  const usual = (sized.find((quantity) => quantity.usual) ?? sized[0])?.name;
  const chosen = () => (sized.some((quantity) => quantity.name === state.qty) ? state.qty : usual);
  const quantities = chooser("Area is", sized.map((quantity) => [quantity.name, quantity.title]), chosen(), (qty) => setState({ qty }));
  // Of times the flame view is what people know; of amounts the treemap.
  const usualShape = quantityOf(usual)?.unit === "time" ? "flame" : "treemap";
  const shapeOf = () => (SHAPES.includes(state.shape) ? state.shape : usualShape);
  const shapes = switcher("Shape", SHAPES.map((shape) => [shape, shape]), shapeOf(), (shape) => setState({ shape }));
  const trail = make("nav", { class: "trail", "aria-label": "Where the map is" });
  const legend = make("div", { class: "legend" });
  const picture = draw("svg", { class: "map", role: "group", "aria-label": "Map of the tree", tabindex: "0" });
  const frame = make("div", { class: "picture" }, picture);
  // A kernel is of the kind of the operator that launched it.
  const types = Array.from({ length: tree.count }, (_, node) => tree.type(tree.type(node) === "kernel" ? tree.parent[node] : node));
  let fork = 0;
  while (tree.children[fork].length === 1) [fork] = tree.children[fork];

  const root = () => (state.zoom ? (tree.byPath.get(state.zoom) ?? 0) : 0);
  const zoom = (node) => {
    if (!tree.children[node].length) return;
    setState({ zoom: node ? tree.path[node] : "" });
    announce(`map of ${tree.name(node)}`);
  };

  let areas = [];

  // Colours tell types; where nearly all is of one type, they tell the parts below the first fork.
  function coloured(own, whole) {
    const sums = new Map();
    types.forEach((type, node) => sums.set(type, (sums.get(type) ?? 0) + own[node]));
    if (Math.max(...sums.values()) < MOSTLY * whole) return types;
    return types.map((_, node) => {
      let at = node;
      while (at && tree.parent[at] !== fork) at = at ? tree.parent[at] : 0;
      return at ? tree.name(at) : "";
    });
  }

  function show() {
    if (!frame.offsetParent || !usual) return;
    const quantity = quantityOf(chosen());
    const total = tree.total[quantity.name];
    const own = tree.own[quantity.name];
    const shape = {
      children: (node) => tree.children[node].filter((child) => total[child] > 0),
      size: (node) => total[node], own: (node) => own[node],
    };
    const top = root();
    const width = Math.max(200, frame.clientWidth);
    const space = Math.max(220, frame.clientHeight);
    const levels = shapeOf() === "treemap" ? 1 : icicleAreas(shape, top, width, LOWEST).reduce((most, area) => Math.max(most, area.depth + 1), 1);
    const level = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(space / levels)));
    const height = Math.max(space, levels * level);
    areas = {
      treemap: () => treemapAreas(shape, top, width, space), icicle: () => icicleAreas(shape, top, width, level),
      flame: () => flameAreas(shape, top, width, level, height),
    }[shapeOf()]();
    const keys = coloured(own, total[0]);
    const colours = coloursOf(keys, (node) => own[node]);
    const at = chosenNode();
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    const turned = shapeOf() === "flame" && picture.dataset.turned !== String(height);
    picture.replaceChildren(...areas.map((area, place) => areaShape(area, place, keys, colours, at, quantity)));
    // A flame that is higher than its frame is first seen from its root.
    if (turned) frame.scrollTop = height;
    picture.dataset.turned = shapeOf() === "flame" ? height : "";
    legend.replaceChildren(
      ...[...colours].map(([type, colour]) => key(type, colour)), key("other", GREY),
      make("span", { class: "faint", text: `${quantity.title}: ${formatAs(quantity.unit, total[top])} in all` }),
    );
    trail.replaceChildren(...trailOf(top).map((node) =>
      make("button", { type: "button", class: "plain", text: tree.name(node), "aria-current": node === top ? "true" : null, on: { click: () => zoom(node) } })));
  }

  function areaShape(area, place, keys, colours, at, quantity) {
    const shade = colours.get(keys[area.node]);
    const inner = !area.leaf && (shapeOf() === "treemap" || !shade);
    const share = tree.total[quantity.name][area.node] / tree.total[quantity.name][0];
    const group = draw("g", { class: `area${inner ? " inner" : ""}${at >= 0 && area.node === at ? " chosen" : ""}`, "data-place": place });
    group.append(draw("rect", {
      x: area.x + 0.5, y: area.y + 0.5, width: Math.max(0.3, area.w - 1), height: Math.max(0.3, area.h - 1),
      fill: inner ? "var(--raised)" : (shade ?? GREY),
    }));
    const room = Math.floor((area.w - 8) / LETTER);
    if (room >= 3 && area.h >= 13) {
      const name = area.own ? "own" : tree.name(area.node);
      const said = `${name}  ${formatShare(share)}`;
      const text = said.length <= room || inner ? said : name;
      group.append(draw("text", { x: area.x + 4, y: area.y + (shapeOf() !== "treemap" ? area.h / 2 + 4 : inner ? 11.5 : Math.min(area.h - 3, 14)), text: text.length > room ? `${text.slice(0, room - 1)}…` : text }));
    }
    return group;
  }

  const areaOf = (event) => areas[Number(event.target.closest?.("g.area")?.dataset.place)];
  picture.addEventListener("click", (event) => areaOf(event) && choose(areaOf(event).node));
  picture.addEventListener("dblclick", (event) => areaOf(event) && zoom(areaOf(event).leaf ? tree.parent[areaOf(event).node] : areaOf(event).node));
  picture.addEventListener("pointermove", (event) => (areaOf(event) ? showTip(event, detailLines(areaOf(event).node)) : hideTip()));
  picture.addEventListener("pointerleave", hideTip);
  picture.addEventListener("keydown", (event) => {
    const at = chosenNode() >= 0 ? chosenNode() : root();
    const siblings = at ? tree.children[tree.parent[at]] : [0];
    const step = (by) => choose(siblings[Math.max(0, Math.min(siblings.length - 1, siblings.indexOf(at) + by))]);
    const moves = {
      ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => at && choose(tree.parent[at]),
      ArrowDown: () => tree.children[at].length && choose(tree.children[at][0]), Enter: () => zoom(at),
      Escape: () => root() && zoom(tree.parent[root()]),
    };
    if (!moves[event.key]) return;
    moves[event.key]();
    event.preventDefault();
  });
  whenChanged((names) => {
    quantities.value = chosen();
    shapes.show(shapeOf());
    // What is chosen elsewhere is brought into the picture.
    if (names.has("sel") && chosenNode() >= 0 && !isWithin(chosenNode(), root())) setState({ zoom: "" });
    else if (["qty", "shape", "zoom", "sel", "bytes", "view"].some((name) => names.has(name))) show();
  });
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "view", "aria-label": "Map" },
    make("div", { class: "tools" }, make("label", { class: "faint" }, "area: ", quantities), shapes, trail), frame, legend);
}

export function key(title, colour) {
  return make("span", { class: "key" }, make("i", { style: { background: colour } }), title);
}

function trailOf(node) {
  const trail = [];
  for (let at = node; ; at = tree.parent[at]) {
    trail.unshift(at);
    if (!at) return trail;
  }
}
