// Tables as the command line has them: of comparisons, budgets, checkpoints and answers about profiles.

import { chosenColumns, columnChooser } from "./columns.js";
import { data, reader } from "./data.js";
import { make } from "./dom.js";
import { formatTime } from "./format.js";
import { Grid, sortRows } from "./grid.js";
import { setTableState, tableState, whenChanged } from "./state.js";
import { isTextual } from "./widths.js";

const FEW_LINES = 12;
const FEW_COLUMNS = 7;
// Of an answer, whose columns come in the order of their use, the first are shown in any case, and these below the name on a phone.
const FIRST = 5;
const BRIEF = ["time", "share"];

function tablePanel(place) {
  const table = data.tables[place];
  const columns = table.columns.map((column) => ({ ...column, of: reader(column.short ?? column), full: column.short && reader(column) }));
  const isAnswer = Boolean(table.folds);
  if (isAnswer) columns.forEach((column, at) => Object.assign(column, { rank: at < FIRST ? 0 : at, brief: BRIEF.indexOf(column.name) + 1 }));
  for (const column of columns) if (column.unit === "share") column.part = (row) => (typeof column.of(row) === "number" ? column.of(row) : 0);
  const all = Array.from({ length: table.count }, (_, row) => row);
  const roles = new Map(table.roles);
  const filter = make("input", { type: "search", placeholder: "find: words, all of them", "aria-label": `Find in ${table.title}` });
  const output = make("output");
  const texts = columns.filter(isTextual);
  const sorting = () => tableState(place).sort;
  const behind = make("ul", { class: "behind" });
  // Lines whose amount here is zero are folded, as long as there are others.
  const folding = columns.find((column) => column.name === table.folds);
  const isFolded = (row) => Boolean(folding) && !roles.has(row) && !folding.of(row);
  const folded = all.filter(isFolded);
  const isFolding = folded.length > 0 && folded.length < all.length - roles.size;
  let unfolded = !isFolding;
  const fold = make("button", { type: "button", class: "plain", on: { click: () => { unfolded = !unfolded; show(); } } });
  let chosen = -1;
  const grid = new Grid(table.title, columns, {
    columns: () => (place ? null : chosenColumns("tcols")),
    ...(table.kernels?.some((kernels) => kernels.length) ? { select: choose, isChosen: (row) => row === chosen } : {}),
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
    behind.replaceChildren(...table.kernels[row].map(([count, name, time]) => make("li", { text: `${count} × ${name}: ${formatTime(time)}` })));
  }

  // Groups are sorted each on its own, and sums stay where they are.
  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => texts.some((column) => String((column.full ?? column.of)(row) ?? "").toLowerCase().includes(word)));
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
      } else if (fits(row) && (unfolded || words.length || !isFolded(row))) run.push(row);
    }
    close();
    output.textContent = `${rows.filter((row) => !roles.has(row)).length} of ${table.count - roles.size} lines`;
    fold.textContent = `${unfolded ? "fold" : "show"} ${folded.length.toLocaleString("en-US")} rows without ${folding?.title}`;
    fold.setAttribute("aria-expanded", String(unfolded));
    filter.hidden = output.hidden = table.count <= FEW_LINES && !words.length;
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
  show();
  return make("section", { class: "panel table", id: `table-${place}`, "aria-label": table.title },
    make("div", { class: "tools" }, make("h2", { text: table.title }), filter, output, isAnswer && !place && columnChooser(grid, "tcols"), grid.copyButtons()), grid.element, isFolding && fold, behind,
    ...table.remarks.map((remark) => make("p", { class: "faint", text: remark })));
}

// The table that is above all other views, if there is one.
export const leadPanel = () => (data.tables.length ? tablePanel(0) : null);

// The others from this place on; those with few columns are side by side where there is room.
export function tablePanels(first) {
  const places = data.tables.map((_, place) => place).slice(first);
  if (places.length < 2) return places.map(tablePanel);
  const isNarrow = (place) => data.tables[place].columns.length <= FEW_COLUMNS;
  const wide = places.filter((place) => !isNarrow(place)).map(tablePanel);
  return [...wide, make("div", { class: "narrow" }, ...places.filter(isNarrow).map(tablePanel))];
}
