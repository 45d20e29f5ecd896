// One colour for each family of operators, the same in every view of every page, and its legend, which filters.

import { data } from "./data.js";
import { make } from "./dom.js";
import { setState, state, whenChanged } from "./state.js";

// Of the light and the dark ground they differ by at least 2.2 in contrast, and from each other also for readers
// who do not see red or green.
const FAMILIES = new Map([
  ["convolution", "#0072b2"], ["matmul", "#2ba35f"], ["attention", "#f09b00"], ["normalization", "#da4600"],
  ["elementwise", "#a8b65a"], ["reduction", "#9e401d"], ["movement", "#56b4e9"], ["indexing", "#114cd9"],
  ["recurrent", "#b473f0"], ["loss", "#7b5340"], ["optimizer", "#7eb594"], ["communication", "#cc79a7"],
  ["other", "#5f6873"],
]);
export const GREY = FAMILIES.get("other");

// Arithmetic of an update is the optimizer's, whatever its kind.
export const familyOf = (kind, phase) => (phase === "update" ? "optimizer" : (data.families?.[kind] ?? "other"));

export const colourOf = (family) => FAMILIES.get(family) ?? GREY;

// What is not an operator, as a module or a curve of a sweep, has one of these by its rank.
export const COLOURS = ["#0072b2", "#f09b00", "#2ba35f", "#cc79a7", "#56b4e9", "#da4600", "#a8b65a"];

export function rankedColours(keys, weight) {
  const sums = new Map();
  keys.forEach((key, row) => key && sums.set(key, (sums.get(key) ?? 0) + weight(row)));
  const ranked = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]).slice(0, COLOURS.length);
  return new Map(ranked.map(([key], place) => [key, COLOURS[place]]));
}

export function key(title, colour) {
  return make("span", { class: "key" }, make("i", { style: { background: colour } }), title);
}

// An entry of a legend that filters: a click shows what has this colour alone, another one all again.
export function legendButton(title, colour, act) {
  const remark = `Show ${title} alone, or all again`;
  return make("button", { type: "button", class: "key", "data-title": title, title: remark, on: { click: act } }, make("i", { style: { background: colour } }), title);
}

export function press(legend, chosen) {
  for (const button of legend.querySelectorAll("button")) button.setAttribute("aria-pressed", String(chosen(button.dataset.title)));
}

// Families of operators as such entries.
export function familyLegend(families) {
  const among = new Set(families);
  const element = make("div", { class: "legend", role: "group", "aria-label": "Kinds of operators" },
    ...[...FAMILIES].filter(([family]) => among.has(family))
      .map(([family, colour]) => legendButton(family, colour, () => setState({ kind: state.kind === family ? "" : family }))));
  const show = () => press(element, (family) => family === state.kind);
  whenChanged((names) => names.has("kind") && show());
  show();
  return element;
}
