// Every operator on a line of its own: all of them, or those of the module that is chosen.

import { colourOf } from "./colours.js";
import { chosenColumns, columnChooser } from "./columns.js";
import { isWithin, ops, tree } from "./data.js";
import { make } from "./dom.js";
import { Grid, sortRows } from "./grid.js";
import { chosenNode, chosenOperator, chooseOperator } from "./selection.js";
import { familyOfOperator, isFiltered, isShownOp, shown, SHOWN_STATE } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";
import { isTextual } from "./widths.js";

const KIND = 2;

export function operatorsPanel() {
  const titled = ops.columns.filter((column) => column.title);
  titled.splice(titled.findIndex((column) => column.name === "raw") + 1, 0, { name: "module", title: "module", unit: "name", of: (row) => tree.path[ops.module[row]] });
  // The first ones are the most important; the kind is mostly in the operator's name.
  const columns = titled.map((column, place) => ({ ...column, rank: column.name === "kind" ? KIND : place / titled.length, least: column.name === "raw" ? 130 : undefined }));
  const only = make("input", { type: "checkbox", id: "only" });
  const filter = make("input", { type: "search", placeholder: "filter", title: "lines that have all of these words", "aria-label": "Find an operator" });
  const output = make("output");
  const all = Array.from({ length: ops.count }, (_, row) => row);
  const texts = columns.filter(isTextual);
  const grid = new Grid("operators", columns, {
    columns: () => chosenColumns("ocols"),
    colour: (row) => colourOf(familyOfOperator(row)),
    select: chooseOperator,
    isChosen: (row) => row === chosenOperator(),
    roleOf: (row) => (ops.of.flops?.(row) === null ? "partial" : ""),
    sort: (name) => {
      const column = columns.find((one) => one.name === name);
      const rising = state.tsort.slice(1) === name ? state.tsort[0] !== "+" : isTextual(column);
      setState({ tsort: `${rising ? "+" : "-"}${name}` });
    },
  });
  const listed = { key: "" };

  function show() {
    if (!grid.element.offsetParent) return;
    const node = state.only ? chosenNode() : -1;
    const words = state.oq.toLowerCase().split(/\s+/).filter(Boolean);
    const key = `${node} ${words.join(" ")} ${state.tsort} ${SHOWN_STATE.map((name) => state[name]).join("|")}`;
    if (key !== listed.key) {
      listed.key = key;
      let rows = isFiltered() ? all.filter(isShownOp) : all;
      // A merged block has the operators of all that it represents.
      const { rep } = shown();
      if (node > 0) rows = rows.filter((row) => isWithin(ops.module[row], node) || isWithin(rep[ops.module[row]], node));
      if (words.length) {
        rows = rows.filter((row) => {
          const text = texts.map((column) => column.of(row)).join(" ").toLowerCase();
          return words.every((word) => text.includes(word));
        });
      }
      const column = columns.find((one) => one.name === state.tsort.slice(1));
      grid.markSort(column?.name, state.tsort[0] === "+");
      listed.rows = column ? sortRows(rows, column, state.tsort[0] === "+") : rows;
    }
    output.textContent = `${listed.rows.length.toLocaleString("en-US")} of ${ops.count.toLocaleString("en-US")}`;
    grid.show(listed.rows);
  }

  only.checked = Boolean(state.only);
  filter.value = state.oq;
  only.addEventListener("change", () => setState({ only: only.checked ? "yes" : "" }));
  let waiting = 0;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => setState({ oq: filter.value }), 120);
  });
  whenChanged((names) => {
    if (!["sel", "tsort", "bytes", "view", "oq", "only", ...SHOWN_STATE].some((name) => names.has(name))) return;
    only.checked = Boolean(state.only);
    if (names.has("oq") && filter.value !== state.oq) filter.value = state.oq;
    show();
    if (names.has("sel") && chosenOperator() >= 0) grid.reveal(chosenOperator());
  });
  queueMicrotask(show);
  return make("section", { class: "view", "aria-label": "Operators" },
    make("div", { class: "tools" }, filter, output, make("label", {}, only, " of the chosen module"), columnChooser(grid, "ocols"), grid.copyButtons()), grid.element);
}
