// The tree as a table: opens and closes, sorts among siblings, finds by words, with bars and own or total amounts.

import { colourOf } from "./colours.js";
import { chosenColumns, columnChooser } from "./columns.js";
import { isPartial, quantityOf, tree } from "./data.js";
import { chooser, make, switcher } from "./dom.js";
import { formatAs } from "./format.js";
import { Grid, sortRows } from "./grid.js";
import { keepOpened, levels, openedModules, openTo, openToLevel } from "./opening.js";
import { hitLines, hits, isHit, searchField } from "./search.js";
import { chosenNode, choose } from "./selection.js";
import { beginsRun, fold, isUnfolded, ownFamily, shown, SHOWN_STATE, unfold } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";
import { isTextual } from "./widths.js";

// Quantities that are shown before the shapes; others only where there is room.
const FIRST = 3;

const workName = (name) => (name === "macs" && quantityOf("flops") ? state.work : name);
const childrenOf = (node) => shown().children(node);
const amount = (name, node) => shown()[state.part][workName(name)][node];
const partOf = (name) => (node) => amount(name, node) / (shown().total[workName(name)][0] || 1);

function treeColumns() {
  const amounts = tree.quantities.filter((quantity) => quantity.name !== "flops" || !quantityOf("macs"));
  const usual = usualQuantity();
  const numbers = amounts.map((quantity, place) => ({
    name: quantity.name, title: quantity.title, unit: quantity.unit, remark: quantity.remark, rank: place < FIRST ? 1 : 3,
    brief: quantity === usual ? 1 : quantity.name === "params" ? 3 : 0,
    of: (node) => amount(quantity.name, node),
    part: quantity.unit === "number" ? null : partOf(quantity.name),
    mark: (node, text) => (quantity.needs_costs && isPartial(node) ? (text === "–" ? "?" : `≥${text}`) : text),
  }));
  const share = { name: "share", title: "share", unit: "share", remark: `of ${usual?.title}`, rank: 1, brief: 2, of: usual && partOf(usual.name) };
  if (usual && tree.total[usual.name][0] > 0) numbers.splice(amounts.indexOf(usual) + 1, 0, share);
  return [
    { name: "name", title: tree.noun, unit: "name", least: 230, of: (node) => shown().label(node), full: (node) => shown().path(node) || tree.name(0) },
    ...(tree.kinds !== false ? [{ name: "type", title: "type", unit: "text", of: (node) => shown().typeOf(node), beside: typeBeside }] : []),
    // Outputs rather than inputs, where there is room for one of them.
    ...tree.details.filter((column) => column.shown).map((column, place, all) => ({ ...column, rank: 2 + (all.length - place) / 10 })),
    ...numbers,
  ];
}

// How often a merged block is there, is on its button.
function typeBeside(node) {
  const { isRun, times, typeOf } = shown();
  if (isRun(node)) return tree.type(node) ?? "";
  return times(node) === 1 && tree.name(node) === tree.type(node) ? "" : (typeOf(node) ?? "");
}

// The button that shows a line for each of the blocks that are merged, or merges them again.
function runButton(node) {
  const { isRun, times } = shown();
  if (isRun(node)) return { text: `${times(node)} ×`, title: "Show each of these blocks", act: () => unfold(node) };
  if (beginsRun(node) && isUnfolded(node)) return { text: "merge", title: "Show equal blocks as one", act: () => fold(node) };
  return null;
}

const usualQuantity = () => tree.quantities.find((quantity) => quantity.usual) ?? tree.quantities[0];

export function treePanel() {
  const opened = new Set();
  const reopen = () => {
    opened.clear();
    for (const node of openedModules(childrenOf, (node) => shown().total[usualQuantity().name][node])) opened.add(node);
  };
  reopen();
  // Among what is found, ancestors of hits are open, unless the reader decides otherwise.
  let leading = new Set();
  const decided = new Map();
  const isOpened = (node) => (state.q ? (decided.get(node) ?? leading.has(node)) : opened.has(node));
  const columns = treeColumns();
  const grid = new Grid(`${tree.noun} tree`, columns, {
    all: Array.from({ length: tree.count }, (_, node) => node),
    columns: () => chosenColumns("cols"),
    level: (node) => tree.depth[node],
    opened: (node) => (childrenOf(node).length ? isOpened(node) : null),
    toggle: (node) => {
      if (state.q) decided.set(node, !isOpened(node));
      else if (!opened.delete(node)) opened.add(node);
      if (!state.q) keepOpened(opened);
      show();
    },
    select: choose,
    isChosen: (node) => node === chosenLine(),
    roleOf: (node) => [isPartial(node) ? "partial" : "", state.q && isHit(node) ? "hit" : state.q || shown().isEmpty(node) ? "dim" : ""].filter(Boolean).join(" "),
    run: runButton,
    colour: (node) => (ownFamily(node) ? colourOf(ownFamily(node)) : null),
    sort: (name) => {
      const [was, rising] = sorting();
      const next = name === was ? !rising : isTextual(columns.find((column) => column.name === name));
      setState({ sort: `${next ? "+" : "-"}${name}` });
    },
  });

  const toLevel = chooser("Open to a level", [["", "open to…"], ...levels()], "", (level) => {
    if (!level) return;
    openToLevel(level, opened);
    keepOpened(opened);
    toLevel.value = "";
    show();
  });
  const parts = switcher("Amounts", [["total", "total"], ["own", "own"]], state.part, (part) => setState({ part }));

  function sorting() {
    return state.sort ? [state.sort.slice(1), state.sort[0] === "+"] : ["", false];
  }

  function show() {
    const [name, rising] = sorting();
    const column = columns.find((one) => one.name === name);
    const ordered = (nodes) => (column ? sortRows(nodes, column, rising) : nodes);
    grid.markSort(column ? name : "", rising);
    if (quantityOf("macs") && quantityOf("flops")) grid.retitle("macs", quantityOf(state.work).title);
    leading = new Set();
    if (state.q) for (const node of hitLines()) openTo(node, leading);
    const isShown = (node) => !state.q || isHit(node) || leading.has(node) || decided.get(tree.parent[node]) === true;
    const rows = [];
    const walk = [0].filter(isShown);
    while (walk.length) {
      const node = walk.pop();
      rows.push(node);
      if (isOpened(node)) walk.push(...ordered(childrenOf(node).filter(isShown)).reverse());
    }
    grid.show(rows);
  }

  // On a line of merged blocks the first of those that were found is chosen.
  function walkHits(step) {
    const lines = grid.rows.filter(isHit);
    if (!lines.length) return;
    const at = lines.indexOf(chosenLine());
    const next = lines[at < 0 ? (step > 0 ? 0 : lines.length - 1) : (at + step + lines.length) % lines.length];
    choose(hits().find((node) => shown().rep[node] === next));
  }

  whenChanged((names) => {
    if (names.has("part")) parts.show(state.part);
    if (names.has("q")) decided.clear();
    if (names.has("open")) reopen();
    // What is open by itself depends on it.
    else if (names.has("unfold")) keepOpened(opened);
    if (["q", "sort", "part", "work", "bytes", "open", ...SHOWN_STATE].some((name) => names.has(name))) show();
    if (names.has("sel")) reveal();
  });

  function reveal() {
    const line = chosenLine();
    if (line >= 0 && !state.q) openTo(line, opened);
    show();
    if (line >= 0) grid.reveal(line);
  }

  show();
  if (chosenNode() > 0) requestAnimationFrame(reveal);
  return make("section", { class: "panel tree", "aria-label": `${tree.noun}s` },
    make("div", { class: "tools" }, ...searchField(walkHits), toLevel, parts, columnChooser(grid, "cols"), grid.copyButtons()), grid.element);
}

// The line that what is chosen is on.
const chosenLine = () => (chosenNode() < 0 ? -1 : shown().rep[chosenNode()]);

export function detailLines(node) {
  const { path, total: totals, typeOf } = shown();
  const lines = [path(node) || tree.name(0)];
  if (tree.type(node)) lines.push(typeOf(node));
  for (const quantity of tree.quantities) {
    const total = totals[quantity.name][node];
    if (total) lines.push(`${quantity.title}: ${formatAs(quantity.unit, total)}`);
  }
  return lines;
}
