// Treemap or icicle of the tree by a chosen quantity; a click chooses, a double click or Enter zooms.

import { icicleAreas, treemapAreas } from "./areas.js";
import { colourOf, familyLegend, GREY, key, legendButton, press, rankedColours } from "./colours.js";
import { data, isWithin, ops, quantityOf, tree } from "./data.js";
import { announce, chooser, draw, hideTip, make, showTip, switcher } from "./dom.js";
import { formatAs, formatShare } from "./format.js";
import { detailLines } from "./modules.js";
import { hits } from "./search.js";
import { choose, chosenNode } from "./selection.js";
import { choicesOf, fold, foldAll, ownFamily, shown, SHOWN_STATE, totalFamily, unfold } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";

const FONT = "11px system-ui, sans-serif";
const LINE = 14;
const MARGIN = 4;
const LEAST_LETTERS = 3;
// How high a level of an icicle may be, as there is room.
const LOWEST = 20;
const HIGHEST = 32;
const SHAPES = ["treemap", "icicle"];
const COLOURINGS = ["kind", "module"];

export function mapPanel() {
  const sized = tree.quantities.filter((quantity) => quantity.name !== tree.partial && tree.total[quantity.name][0] > 0);
  const usual = (sized.find((quantity) => quantity.usual) ?? sized[0])?.name;
  const chosen = () => (sized.some((quantity) => quantity.name === state.qty) ? state.qty : usual);
  const quantities = chooser("Area is", sized.map((quantity) => [quantity.name, quantity.title]), chosen(), (qty) => setState({ qty }));
  // Of times the icicle is what people know from profilers; of amounts the treemap.
  const usualShape = quantityOf(usual)?.unit === "time" ? "icicle" : "treemap";
  const shapeOf = () => (SHAPES.includes(state.shape) ? state.shape : usualShape);
  const shapes = switcher("Shape", SHAPES.map((shape) => [shape, shape]), shapeOf(), (shape) => setState({ shape }));
  // Without operators, as of a checkpoint, what is below the modules has types; one type for all of it tells nothing.
  const usualColour = ops || new Set(data.tree.type.at.filter((_, node) => !tree.children[node].length)).size > 1 ? "kind" : "module";
  const colourBy = () => (COLOURINGS.includes(state.colour) ? state.colour : usualColour);
  const colouring = switcher("Colour by", COLOURINGS.map((one) => [one, `by ${one === "kind" && !ops ? "type" : one}`]), colourBy(), (colour) => setState({ colour }));
  const merge = make("button", { type: "button", class: "plain", text: "merge repeated blocks", on: { click: foldAll } });
  const trail = make("nav", { class: "trail", "aria-label": "Where the map is" });
  const kinds = familyLegend(choicesOf("kind"));
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Colours of the map" });
  const sum = make("p", { class: "faint" });
  const picture = draw("svg", { class: "map", role: "group", tabindex: "0", "aria-label": "Map of the tree; arrows move, Enter zooms, Escape zooms out, plus and minus unfold and merge repeated blocks" });
  const frame = make("div", { class: "picture" }, picture);
  const pen = document.createElement("canvas").getContext("2d");
  const fork = firstFork();
  const parts = partsBelow(fork);

  const root = () => (state.zoom ? shown().rep[tree.byPath.get(state.zoom) ?? 0] : 0);
  const zoom = (node) => {
    if (!tree.children[node].length) return;
    setState({ zoom: node ? tree.path[node] : "" });
    announce(`map of ${shown().label(node)}`);
  };

  let areas = [];
  let written = "";

  function show() {
    if (!frame.offsetParent || !usual) return;
    const quantity = quantityOf(chosen());
    const now = shown();
    const total = now.total[quantity.name];
    const own = now.own[quantity.name];
    const shape = {
      children: (node) => now.children(node).filter((child) => total[child] > 0),
      size: (node) => total[node], own: (node) => own[node],
    };
    const top = root();
    const width = Math.max(200, frame.clientWidth);
    const space = Math.max(220, frame.clientHeight);
    const levels = shapeOf() === "treemap" ? 1 : icicleAreas(shape, top, width, LOWEST).reduce((most, area) => Math.max(most, area.depth + 1), 1);
    const level = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(space / levels)));
    const height = Math.max(space, levels * level);
    areas = shapeOf() === "treemap" ? treemapAreas(shape, top, width, space) : icicleAreas(shape, top, width, level);
    const colour = colours(own);
    const at = chosenNode() < 0 ? -1 : now.rep[chosenNode()];
    const lit = state.q ? new Set(hits().map((node) => now.rep[node])) : null;
    pen.font = FONT;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.replaceChildren(...areas.map((area, place) => areaShape(area, place, { colour, at, lit, whole: total[0] })));
    merge.hidden = !state.unfold;
    sum.textContent = `${quantity.title}: ${formatAs(quantity.unit, total[top])} in all`;
    trail.hidden = !top;
    trail.replaceChildren(...trailOf(top).map((node) =>
      make("button", { type: "button", class: "plain", text: now.label(node), "aria-current": node === top ? "true" : null, on: { click: () => zoom(node) } })));
  }

  // The colour of an area, and the legend of all; the areas of modules that are opened have none.
  function colours(own) {
    const byModule = colourBy() === "module";
    const byKind = ops && !byModule;
    kinds.hidden = !byKind;
    legend.hidden = byKind;
    if (byKind) {
      const family = (area) => (tree.children[area.node].length && area.leaf && !area.own ? totalFamily : ownFamily)(area.node);
      return (area) => (family(area) ? colourOf(family(area)) : null);
    }
    const keys = byModule ? parts : Array.from({ length: tree.count }, (_, node) => tree.type(node));
    const ranked = rankedColours(keys, (node) => own[node]);
    const [act, isChosen] = byModule ? [zoomToPart, isPartAlone] : [findType, isTypeFound];
    const text = [colourBy(), ...ranked.keys()].join("\n");
    // Made anew only if it is another one, so that its buttons keep the focus.
    if (text !== written) {
      const isMore = keys.some((title, node) => own[node] > 0 && !ranked.has(title));
      legend.replaceChildren(...[...ranked].map(([title, colour]) => legendButton(title, colour, () => act(title))), ...(isMore ? [key("other", GREY)] : []));
      written = text;
    }
    press(legend, isChosen);
    return (area) => ranked.get(keys[area.node]);
  }

  // An entry shows a module alone, or lights up all that has a type.
  const partNamed = (title) => tree.children[fork].find((node) => tree.name(node) === title);
  const isPartAlone = (title) => root() > 0 && parts[root()] === title;
  const zoomToPart = (title) => {
    const node = partNamed(title);
    if (tree.children[node].length) zoom(isPartAlone(title) ? 0 : node);
    else choose(node);
  };
  const isTypeFound = (title) => state.q === `type:${title}`.toLowerCase();
  const findType = (title) => setState({ q: isTypeFound(title) ? "" : `type:${title}`.toLowerCase() });

  function areaShape(area, place, { colour, at, lit, whole }) {
    const now = shown();
    const shade = colour(area);
    const inner = !area.leaf && (shapeOf() === "treemap" || !shade);
    // What is searched for lights up, with all that it consists of.
    const isLit = !lit || trailOf(area.node).some((node) => lit.has(node));
    const classes = ["area", inner && "inner", area.node === at && "chosen", lit?.has(area.node) && "hit", ((area.leaf && !isLit) || now.isEmpty(area.node)) && "dim"];
    const group = draw("g", { class: classes.filter(Boolean).join(" "), "data-place": place });
    group.append(draw("rect", {
      x: area.x + 0.5, y: area.y + 0.5, width: Math.max(0.3, area.w - 1), height: Math.max(0.3, area.h - 1),
      fill: inner ? "var(--raised)" : (shade ?? GREY),
    }));
    const high = area.leaf ? area.h : area.title;
    if (high < LINE - 1) return group;
    const share = formatShare(area.size / whole);
    const single = area.own ? "own" : area.rest ? `${area.rest.toLocaleString("en-US")} more` : now.label(area.node);
    const type = now.isRun(area.node) && !area.own && !area.rest ? ` · ${now.typeOf(area.node)}` : "";
    const lines = labelLines(`${single}${type}`, share, area.w - 2 * MARGIN, shapeOf() === "treemap" && high >= 2 * LINE + MARGIN);
    const first = area.y + (inner ? 11.5 : shapeOf() === "treemap" ? Math.min(high - 3, LINE) : high / 2 + 4);
    group.append(...lines.map((text, line) => draw("text", { x: area.x + MARGIN, y: first + line * LINE, text })));
    return group;
  }

  // A name and a share on one line, else on two, else what of the name has room; a number is whole or left out.
  function labelLines(name, share, room, tall) {
    const wide = (text) => pen.measureText(text).width;
    if (wide(`${name}  ${share}`) <= room) return [`${name}  ${share}`];
    const second = tall && wide(share) <= room ? [share] : [];
    if (wide(name) <= room) return [name, ...second];
    let letters = Math.floor((name.length * room) / wide(name));
    while (letters > 0 && wide(`${name.slice(0, letters)}…`) > room) letters -= 1;
    return letters < LEAST_LETTERS ? [] : [`${name.slice(0, letters)}…`, ...second];
  }

  const areaOf = (event) => areas[Number(event.target.closest?.("g.area")?.dataset.place)];
  picture.addEventListener("click", (event) => {
    const area = areaOf(event);
    if (!area) return;
    if (shown().isRun(area.node) && !area.own && !area.rest) unfold(area.node);
    choose(area.node);
  });
  picture.addEventListener("dblclick", (event) => {
    const area = areaOf(event);
    if (area) zoom(tree.children[area.node].length ? area.node : tree.parent[area.node]);
  });
  picture.addEventListener("pointermove", (event) => (areaOf(event) ? showTip(event, detailLines(areaOf(event).node)) : hideTip()));
  picture.addEventListener("pointerleave", hideTip);
  picture.addEventListener("keydown", (event) => {
    const { children, rep } = shown();
    const at = chosenNode() >= 0 ? rep[chosenNode()] : root();
    const siblings = at ? children(tree.parent[at]) : [0];
    const step = (by) => choose(siblings[Math.max(0, Math.min(siblings.length - 1, siblings.indexOf(at) + by))]);
    const moves = {
      ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => at && choose(tree.parent[at]),
      ArrowDown: () => children(at).length && choose(children(at)[0]), Enter: () => zoom(at),
      Escape: () => root() && zoom(tree.parent[root()]), "+": () => unfold(at), "-": () => fold(at),
    };
    if (!moves[event.key]) return;
    moves[event.key]();
    event.preventDefault();
  });
  whenChanged((names) => {
    quantities.value = chosen();
    shapes.show(shapeOf());
    colouring.show(colourBy());
    // What is chosen elsewhere is brought into the picture.
    if (names.has("sel") && chosenNode() >= 0 && !isWithin(shown().rep[chosenNode()], root())) setState({ zoom: "" });
    else if (["qty", "shape", "colour", "zoom", "sel", "q", "bytes", "view", ...SHOWN_STATE].some((name) => names.has(name))) show();
  });
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "view", "aria-label": "Map" },
    make("div", { class: "tools" }, quantities, shapes, colouring, merge, trail), frame, kinds, legend, sum);
}

function firstFork() {
  let fork = 0;
  while (tree.children[fork].length === 1) [fork] = tree.children[fork];
  return fork;
}

// The part below a fork that each node is in; "" above it.
function partsBelow(fork) {
  const parts = new Array(tree.count).fill("");
  for (let node = 1; node < tree.count; node += 1) parts[node] = tree.parent[node] === fork ? tree.name(node) : parts[tree.parent[node]];
  return parts;
}

function trailOf(node) {
  const trail = [];
  for (let at = node; ; at = tree.parent[at]) {
    trail.unshift(at);
    if (!at) return trail;
  }
}
