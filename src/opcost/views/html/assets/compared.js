// Sources side by side: the totals with their differences from one of them, and modules as a tree.

import { data } from "./data.js";
import { chooser, make } from "./dom.js";
import { formatAmount } from "./format.js";
import { cellText, changeClass, Grid, sortRows } from "./grid.js";
import { setState, state, whenChanged } from "./state.js";
import { isTextual } from "./widths.js";

// Of more sources there is room for differences in percent alone.
const MOST_DIFFERENCES = 3;

// The source that the others are compared with: the first, until another one is chosen.
export function baseline() {
  const place = Number(state.base);
  return place > 0 && place < data.compared.sources.length ? place : 0;
}

// Of each source its amounts, and how they differ from the baseline. `read` gives all amounts of a row, null where there is none,
// `cellOf` one of them for a cell.
function sourceColumns(read, unitOf, cellOf) {
  const both = (row, place) => [read(row)[baseline()], read(row)[place]];
  const difference = (place) => (row) => {
    const [before, after] = both(row, place);
    return before === null && after === null ? "" : [(after ?? 0) - (before ?? 0), unitOf(row), false, true];
  };
  const relative = (place) => (row) => {
    const [before, after] = both(row, place);
    if (before === null || after === null) return before === after ? "" : before === null ? "added" : "removed";
    return before ? [(after - before) / before, "share", false, true] : after ? "added" : 0;
  };
  const most = (row) => Math.max(1, ...read(row).map((amount) => amount ?? 0));
  return data.compared.sources.flatMap((label, place) => [
    { name: `source${place}`, title: titleOf(place), unit: "number", isAlike: true, remark: label, of: (row) => cellOf(row, place), part: (row) => (read(row)[place] ?? 0) / most(row) },
    ...(data.compared.sources.length > MOST_DIFFERENCES ? [] : [{ name: `difference${place}`, title: "difference", unit: "number", of: difference(place) }]),
    { name: `change${place}`, title: "change", unit: "share", of: relative(place) },
  ]);
}

const titleOf = (place) => `${place === baseline() ? "◆ " : ""}${data.compared.sources[place].split("/").at(-1)}`;

// All but the differences of the baseline from itself.
const shownColumns = (columns) => new Set(columns.map((column) => column.name).filter((name) => ![`difference${baseline()}`, `change${baseline()}`].includes(name)));

function markBaseline(grid) {
  data.compared.sources.forEach((_, place) => grid.retitle(`source${place}`, titleOf(place)));
  grid.arrange();
  grid.draw(true);
}

const compareWith = (place) => setState({ base: place ? String(place) : "" });

export function totalsPanel() {
  const { totals } = data.compared;
  const amountOf = (row, place) => [totals[row].amounts[place], totals[row].unit, totals[row].partial[place], false];
  const columns = [
    { name: "quantity", title: "quantity", unit: "name", of: (row) => totals[row].title },
    ...sourceColumns((row) => totals[row].amounts, (row) => totals[row].unit, amountOf),
  ];
  const grid = new Grid("totals", columns, {
    columns: () => shownColumns(columns),
    sort: (name) => name.startsWith("source") && compareWith(Number(name.slice("source".length))),
  });
  grid.show(totals.map((_, row) => row));
  // On a narrow screen sources are below each other.
  const stack = make("div", { class: "stack" });
  const show = () => {
    markBaseline(grid);
    stack.replaceChildren(...data.compared.sources.map((label, place) => {
      const change = columns.find((column) => column.name === `change${place}`);
      return make("section", { "aria-label": label },
        make("h3", {}, make("button", { type: "button", class: "plain", text: titleOf(place), "aria-pressed": String(place === baseline()), on: { click: () => compareWith(place) } })),
        make("dl", {}, ...totals.map((total, row) => make("div", {},
          make("dt", { text: total.title }), make("dd", { text: formatAmount(amountOf(row, place)) }),
          make("dd", { class: place === baseline() ? null : changeClass(change.of(row)), text: place === baseline() ? "" : cellText(change, row) })))));
    }));
  };
  show();
  whenChanged((names) => (names.has("bytes") || names.has("base")) && show());
  return make("section", { class: "panel table compared", "aria-label": "Totals" },
    make("div", { class: "tools" }, make("h2", { text: "Totals" }), make("span", { class: "faint", text: "differences are from ◆; a click on another source compares with it" }), grid.copyButtons()), grid.element, stack);
}

export function comparedModulesPanel() {
  const { paths, types, quantities } = data.compared;
  const at = new Map(paths.map((path, row) => [path, row]));
  const parent = paths.map((path) => {
    for (let up = path; up.includes(".");) {
      up = up.slice(0, up.lastIndexOf("."));
      if (at.has(up)) return at.get(up);
    }
    return -1;
  });
  const children = paths.map(() => []);
  parent.forEach((up, row) => up >= 0 && children[up].push(row));
  const level = (row) => (parent[row] < 0 ? 0 : level(parent[row]) + 1);
  const opened = () => new Set(state.copen.split(".").filter(Boolean).map((text) => parseInt(text, 36)));
  const quantity = () => quantities.find((one) => one.name === state.qty) ?? quantities[0];
  const read = (row) => quantity().amounts[row];
  const onlyChanged = make("input", { type: "checkbox" });
  const columns = [
    { name: "name", title: "module", unit: "name", least: 150, of: (row) => (parent[row] < 0 ? paths[row] : paths[row].slice(paths[parent[row]].length + 1)), full: (row) => paths[row] },
    ...(types.some(Boolean) ? [{ name: "type", title: "type", unit: "text", isWide: true, of: (row) => types[row] }] : []),
    ...sourceColumns(read, () => quantity().unit, (row, place) => (read(row)[place] === null ? "" : [read(row)[place], quantity().unit, false, false])),
  ];
  let chosen = -1;
  const grid = new Grid("modules compared", columns, {
    columns: () => shownColumns(columns),
    level, opened: (row) => (children[row].length ? opened().has(row) : null), select: (row) => { chosen = row; }, isChosen: (row) => row === chosen,
    toggle: (row) => {
      const now = opened();
      if (!now.delete(row)) now.add(row);
      setState({ copen: [...now].map((one) => one.toString(36)).join(".") });
    },
    sort: (name) => {
      const rising = state.csort.slice(1) === name ? state.csort[0] !== "+" : isTextual(columns.find((one) => one.name === name));
      setState({ csort: `${rising ? "+" : "-"}${name}` });
    },
  });

  const changed = (row) => read(row).some((amount) => amount !== read(row)[baseline()]);

  function show() {
    const column = columns.find((one) => one.name === state.csort.slice(1));
    const rising = state.csort[0] === "+";
    const isThere = (row) => read(row)[baseline()] !== null;
    const ordered = (rows) => (column ? sortRows(rows, column, rising) : [...rows.filter(isThere), ...rows.filter((row) => !isThere(row))]);
    const now = opened();
    onlyChanged.checked = Boolean(state.changed);
    grid.markSort(column?.name, rising);
    const walk = [...ordered(paths.map((_, row) => row).filter((row) => parent[row] < 0))].reverse();
    const rows = [];
    while (walk.length) {
      const row = walk.pop();
      if (onlyChanged.checked && !changed(row)) continue;
      rows.push(row);
      if (now.has(row)) walk.push(...[...ordered(children[row])].reverse());
    }
    grid.show(rows);
  }

  onlyChanged.addEventListener("change", () => setState({ changed: onlyChanged.checked ? "yes" : "" }));
  const list = chooser("Amounts are", quantities.map((one) => [one.name, one.title]), quantity().name, (qty) => setState({ qty }));
  whenChanged((names) => {
    if (names.has("qty")) list.value = quantity().name;
    if (names.has("base")) markBaseline(grid);
    if (["qty", "bytes", "base", "csort", "copen", "changed"].some((name) => names.has(name))) show();
  });
  show();
  markBaseline(grid);
  return make("section", { class: "panel table", "aria-label": "Modules" },
    make("div", { class: "tools" }, make("h2", { text: "Modules" }), list, make("label", {}, onlyChanged, " only what differs"), grid.copyButtons()), grid.element);
}
