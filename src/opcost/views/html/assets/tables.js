// Tables as the command line has them: of comparisons, budgets, checkpoints and answers about profiles.

import { reader } from "./data.js";
import { make } from "./dom.js";
import { formatTime } from "./format.js";
import { Grid, LINE, sortRows } from "./grid.js";
import { setTableState, tableState, whenChanged } from "./state.js";
import { isTextual } from "./widths.js";

function tablePanel(told, place) {
  const columns = told.columns.map((column) => ({ ...column, of: reader(column) }));
  for (const column of columns) if (column.unit === "share") column.part = (row) => (typeof column.of(row) === "number" ? column.of(row) : 0);
  const all = Array.from({ length: told.count }, (_, row) => row);
  const roles = new Map(told.roles);
  const filter = make("input", { type: "search", placeholder: "find: words, all of them", "aria-label": `Find in ${told.title}` });
  const output = make("output");
  const texts = columns.filter(isTextual);
  const sorting = () => tableState(place).sort;
  const behind = make("ul", { class: "behind" });
  let chosen = -1;
  const grid = new Grid(told.title, columns, {
    ...(told.kernels?.some((kernels) => kernels.length) ? { select: choose, isChosen: (row) => row === chosen } : {}),
    roleOf: (row) => roles.get(row) ?? "",
    sort: (name) => {
      const column = columns.find((one) => one.name === name);
      const rising = sorting().slice(1) === name ? sorting()[0] !== "+" : isTextual(column);
      setTableState(place, { sort: `${rising ? "+" : "-"}${name}`, find: filter.value });
    },
  });

  // The kernels behind a line.
  function choose(row) {
    chosen = row;
    behind.replaceChildren(...told.kernels[row].map(([count, name, time]) => make("li", { text: `${count} × ${name}: ${formatTime(time)}` })));
  }

  // Groups are sorted each on its own, and sums stay where they are.
  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => texts.some((column) => String(column.of(row) ?? "").toLowerCase().includes(word)));
    const column = columns.find((one) => one.name === sorting().slice(1));
    const rising = sorting()[0] === "+";
    grid.markSort(column?.name, rising);
    const rows = [];
    let run = [];
    const close = () => {
      rows.push(...(column ? sortRows(run, column, rising) : run));
      run = [];
    };
    for (const row of all) {
      if (roles.has(row)) {
        close();
        rows.push(row);
      } else if (fits(row)) run.push(row);
    }
    close();
    output.textContent = `${rows.filter((row) => !roles.has(row)).length} of ${told.count - roles.size} lines`;
    grid.show(rows);
  }

  filter.value = tableState(place).find;
  filter.addEventListener("input", () => setTableState(place, { sort: sorting(), find: filter.value }));
  whenChanged((names) => {
    if (names.has("tables")) {
      if (filter.value !== tableState(place).find) filter.value = tableState(place).find;
      show();
    }
    if (names.has("bytes")) grid.draw(true);
  });
  // A short table needs no room for more.
  grid.element.style.height = `${Math.min(told.count * LINE + 34, 640)}px`;
  show();
  return make("section", { class: "panel table", "aria-label": told.title },
    make("div", { class: "tools" }, make("h2", { text: told.title }), told.count > 12 ? filter : null, told.count > 12 ? output : null, grid.copyButtons()), grid.element, behind,
    ...told.remarks.map((remark) => make("p", { class: "faint", text: remark })));
}

const FEW = 7;

// Tables with few columns stand side by side where there is room.
export function tablePanels(tables) {
  const panels = tables.map((table, place) => tablePanel(table, place));
  const isNarrow = (place) => tables[place].columns.length <= FEW;
  if (panels.length < 2) return panels;
  return [...panels.filter((_, place) => !isNarrow(place)), make("div", { class: "narrow" }, ...panels.filter((_, place) => isNarrow(place)))];
}
