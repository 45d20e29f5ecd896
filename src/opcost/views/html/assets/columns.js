// The button "columns": which of a table's columns are shown, as many as there is room for or as the reader chooses.

import { make } from "./dom.js";
import { setState, state, whenChanged } from "./state.js";

// The names that the reader chose, or null where that is left to the width.
export const chosenColumns = (key) => (state[key] ? new Set(state[key].split(".")) : null);

export function columnChooser(grid, key) {
  const list = make("fieldset", {}, make("legend", { class: "unseen", text: `Columns of ${grid.label}` }));
  const box = make("details", { class: "columns" }, make("summary", { text: "columns" }), list);
  const boxes = grid.every.slice(1).filter((column) => !column.beside).map((column) => {
    const mark = make("input", { type: "checkbox" });
    mark.addEventListener("change", () => {
      const names = new Set(grid.columns.map((one) => one.name));
      if (mark.checked) names.add(column.name);
      else names.delete(column.name);
      setState({ [key]: grid.every.slice(1).map((one) => one.name).filter((name) => names.has(name)).join(".") || "-" });
    });
    const title = make("span");
    list.append(make("label", { title: column.remark }, mark, title));
    return { column, mark, title };
  });
  const automatic = make("button", { type: "button", class: "plain", text: "as many as fit", on: { click: () => setState({ [key]: "" }) } });
  list.append(automatic);
  const show = () => {
    for (const { column, mark, title } of boxes) {
      mark.checked = grid.columns.includes(column);
      title.textContent = column.title;
    }
    automatic.disabled = !state[key];
  };
  box.addEventListener("toggle", show);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    box.open = false;
    box.firstChild.focus();
  });
  addEventListener("click", (event) => { if (box.open && !box.contains(event.target)) box.open = false; });
  whenChanged((names) => {
    if (!names.has(key)) return;
    grid.arrange();
    show();
  });
  return box;
}
