// Sources side by side: the totals with their changes, and modules as a tree; more is told in one colour, less in another.

import { data } from "./data.js";
import { chooser, make } from "./dom.js";
import { formatAs } from "./format.js";
import { Grid, LINE, sortRows } from "./grid.js";
import { setState, state, whenChanged } from "./state.js";
import { isTextual } from "./widths.js";

const amountsOf = (unit, read) => data.compared.sources.map((label, place) => ({
  name: `source${place}`, title: label.split("/").at(-1), remark: label, unit, of: (row) => read(row)[place], mark: (row, text) => (read(row)[place] === null ? "" : text),
}));

// From the first source to the last, as an amount and in percent.
function changesOf(read, unitOf) {
  const both = (row) => [read(row)[0], read(row).at(-1)];
  return [
    {
      name: "difference", title: "difference", unit: "number",
      of: (row) => {
        const [first, last] = both(row);
        return first === null && last === null ? "" : [(last ?? 0) - (first ?? 0), unitOf(row), false, true];
      },
    },
    {
      name: "relative", title: "change", unit: "share",
      of: (row) => {
        const [first, last] = both(row);
        if (first === null || last === null) return first === null && last === null ? "" : first === null ? "added" : "removed";
        return first ? (last - first) / first : last ? "added" : 0;
      },
      mark: (row, text) => (/^[\d.]/.test(text) ? `+${text}` : text),
    },
  ];
}

export function totalsPanel() {
  const { totals } = data.compared;
  const read = (row) => totals[row].amounts;
  const columns = [
    { name: "quantity", title: "quantity", unit: "name", of: (row) => totals[row].title },
    ...amountsOf("count", read).map((column, place) => ({
      ...column, of: (row) => (read(row)[place] === null ? null : [read(row)[place], totals[row].unit, totals[row].partial[place], false]),
      part: (row) => (read(row)[place] ?? 0) / Math.max(1, ...read(row).map((amount) => amount ?? 0)), mark: undefined,
    })),
    ...changesOf(read, (row) => totals[row].unit),
  ];
  const grid = new Grid("totals", columns);
  grid.element.style.height = `${totals.length * LINE + 34}px`;
  grid.show(totals.map((_, row) => row));
  whenChanged((names) => names.has("bytes") && grid.draw(true));
  return make("section", { class: "panel table", "aria-label": "Totals" }, make("div", { class: "tools" }, make("h2", { text: "Totals" }), grid.copyButtons()), grid.element);
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
    { name: "name", title: "module", unit: "name", least: 240, of: (row) => (parent[row] < 0 ? paths[row] : paths[row].slice(paths[parent[row]].length + 1)), full: (row) => paths[row] },
    ...(types.some(Boolean) ? [{ name: "type", title: "type", unit: "text", of: (row) => types[row] }] : []),
    ...amountsOf(quantities[0].unit, read).map((column) => ({ ...column, mark: (row, text) => (column.of(row) === null ? "" : formatAs(quantity().unit, column.of(row)) || text) })),
    ...changesOf(read, () => quantity().unit),
  ];
  let chosen = -1;
  const grid = new Grid("modules compared", columns, {
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

  const changed = (row) => read(row)[0] !== read(row).at(-1);

  function show() {
    const column = columns.find((one) => one.name === state.csort.slice(1));
    const rising = state.csort[0] === "+";
    const ordered = (rows) => (column ? sortRows(rows, column, rising) : rows);
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
    grid.element.style.height = `${Math.min(rows.length * LINE + 34, 620)}px`;
    grid.show(rows);
  }

  onlyChanged.addEventListener("change", () => setState({ changed: onlyChanged.checked ? "yes" : "" }));
  const list = chooser("Amounts are", quantities.map((one) => [one.name, one.title]), quantity().name, (qty) => setState({ qty }));
  whenChanged((names) => {
    if (names.has("qty")) list.value = quantity().name;
    if (["qty", "bytes", "csort", "copen", "changed"].some((name) => names.has(name))) show();
  });
  show();
  return make("section", { class: "panel table", "aria-label": "Modules" },
    make("div", { class: "tools" }, make("h2", { text: "Modules" }), list, make("label", {}, onlyChanged, " only what differs"), grid.copyButtons()), grid.element);
}
