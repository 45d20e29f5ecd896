// The tree as a table: opens and closes, sorts among siblings, finds by words, with bars and own or total amounts.

import { isPartial, quantityOf, tree } from "./data.js";
import { chooser, make, switcher } from "./dom.js";
import { formatAs } from "./format.js";
import { Grid, isTextual, sortRows } from "./grid.js";
import { chosenNode, choose } from "./selection.js";
import { setState, state, whenChanged } from "./state.js";

const ROOM = 40;

export const workName = (name) => (name === "macs" && quantityOf("flops") ? state.work : name);

export function treePanel() {
  const opened = usualOpen();
  const own = () => state.part === "own";
  const amount = (name, node) => (own() ? tree.own : tree.total)[workName(name)][node];
  const numbers = tree.quantities.filter((quantity) => quantity.name !== "flops" || !quantityOf("macs")).map((quantity) => ({
    name: quantity.name, title: quantity.title, unit: quantity.unit, remark: quantity.remark,
    of: (node) => amount(quantity.name, node),
    part: quantity.unit === "number" ? null : (node) => amount(quantity.name, node) / tree.total[workName(quantity.name)][0],
    mark: (node, text) => (quantity.needs_costs && isPartial(node) ? (text === "–" ? "?" : `≥${text}`) : text),
  }));
  const columns = [
    {
      name: "name", title: tree.noun, unit: "name", least: 180, most: 260, of: tree.name,
      full: (node) => (node ? tree.path[node] : tree.name(0)),
    },
    ...(hasTypes() ? [{ name: "type", title: "type", unit: "text", of: tree.type, most: 130 }] : []),
    ...numbers,
    ...tree.details.filter((column) => column.shown),
  ];
  const grid = new Grid(`${tree.noun} tree`, columns, {
    all: Array.from({ length: tree.count }, (_, node) => node),
    level: (node) => (state.q ? 0 : tree.depth[node]),
    opened: (node) => (state.q || !tree.children[node].length ? null : opened.has(node)),
    toggle: (node) => {
      if (opened.has(node)) opened.delete(node);
      else opened.add(node);
      keepOpen(opened);
      show();
    },
    select: choose,
    isChosen: (node) => node === chosenNode(),
    roleOf: (node) => (isPartial(node) ? "partial" : ""),
    sort: (name) => {
      const [was, rising] = sorting();
      const next = name === was ? !rising : isTextual(columns.find((column) => column.name === name));
      setState({ sort: `${next ? "+" : "-"}${name}` });
    },
  });

  const search = make("input", { type: "search", placeholder: "find: words, all of them", "aria-label": `Find a ${tree.noun}` });
  search.value = state.q;
  search.addEventListener("input", () => setState({ q: search.value.trim().toLowerCase() }));
  const told = make("output");
  const deepest = Math.max(...tree.depth);
  const levels = [["", "open to…"], ...Array.from({ length: Math.min(deepest, 9) + 1 }, (_, level) => [String(level), `level ${level}`]), ["all", "all levels"]];
  const toLevel = chooser("Open to a level", levels, "", (level) => {
    if (!level) return;
    opened.clear();
    for (let node = 0; node < tree.count; node += 1) if (level === "all" || tree.depth[node] < Number(level)) opened.add(node);
    keepOpen(opened);
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
    const rows = state.q ? ordered(found(state.q)) : [];
    if (!state.q) {
      const walk = [0];
      while (walk.length) {
        const node = walk.pop();
        rows.push(node);
        if (opened.has(node)) walk.push(...[...ordered(tree.children[node])].reverse());
      }
    }
    told.textContent = `${rows.length.toLocaleString("en-US")} of ${tree.count.toLocaleString("en-US")}`;
    grid.show(rows);
  }

  whenChanged((names) => {
    if (names.has("q") && search.value.trim().toLowerCase() !== state.q) search.value = state.q;
    if (names.has("part")) parts.show(state.part);
    if (names.has("open")) {
      const told = usualOpen();
      opened.clear();
      for (const node of told) opened.add(node);
    }
    if (["q", "sort", "part", "work", "bytes", "open"].some((name) => names.has(name))) show();
    if (names.has("sel")) {
      const node = chosenNode();
      if (node >= 0 && !state.q) openTo(node, opened);
      show();
      if (node >= 0) grid.reveal(node);
    }
  });
  show();
  if (chosenNode() > 0) {
    openTo(chosenNode(), opened);
    show();
    requestAnimationFrame(() => grid.reveal(chosenNode()));
  }
  return make("section", { class: "panel tree", "aria-label": `${tree.noun}s` },
    make("div", { class: "tools" }, search, told, toLevel, parts, grid.copyButtons()), grid.element);
}

const hasTypes = () => tree.kinds !== false;

function found(query) {
  const words = query.split(/\s+/);
  const rows = [];
  for (let node = 0; node < tree.count; node += 1) {
    const text = `${tree.path[node]} ${tree.type(node) ?? ""}`.toLowerCase();
    if (words.every((word) => text.includes(word))) rows.push(node);
  }
  return rows;
}

// As many levels as fit on a screen, or what the address tells.
function usualOpen() {
  if (state.open) return new Set(state.open.split(".").map((text) => parseInt(text, 36)).filter((node) => node >= 0 && node < tree.count));
  const opened = new Set();
  let level = [0];
  let lines = 1;
  while (level.length) {
    const next = level.flatMap((node) => tree.children[node]);
    if (lines + next.length > ROOM && lines > 1) break;
    level.forEach((node) => opened.add(node));
    lines += next.length;
    level = next;
  }
  return opened;
}

const MOST_KEPT = 400;

function keepOpen(opened) {
  if (opened.size <= MOST_KEPT) setState({ open: [...opened].map((node) => node.toString(36)).join(".") || "-" });
}

function openTo(node, opened) {
  for (let at = tree.parent[node]; at !== undefined && at >= 0; at = at === 0 ? -1 : tree.parent[at]) opened.add(at);
}

export function detailLines(node) {
  const lines = [node ? tree.path[node] : tree.name(0)];
  if (tree.type(node)) lines.push(tree.type(node));
  for (const quantity of tree.quantities) {
    const total = tree.total[quantity.name][node];
    if (total) lines.push(`${quantity.title}: ${formatAs(quantity.unit, total)}`);
  }
  return lines;
}
