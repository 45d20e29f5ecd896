// What memory is used for: a colour for each part, and a bar of all of them with their amounts.

import { key } from "./colours.js";
import { make } from "./dom.js";
import { formatBytes, formatShare } from "./format.js";

const COLOURS = new Map([
  ["weights", "#0072b2"], ["gathered", "#2b8cbe"], ["inputs", "#56b4e9"], ["received", "#88ccee"], ["optimizer", "#cc79a7"], ["gradients", "#d55e00"], ["saved", "#e69f00"],
  ["outputs", "#b8a800"], ["temporary", "#009e73"], ["workspace", "#8a929c"], ["added", "#e69f00"], ["all", "#0072b2"],
  ["kept by the allocator", "#8a929c"],
]);

export const colourOfPart = (name) => COLOURS.get(name) ?? "var(--line)";

// `parts` are amounts by name, of which the largest comes first.
export function partsBar(parts, whole) {
  const ranked = Object.entries(parts).sort((a, b) => b[1] - a[1]);
  const share = (size) => formatShare(size / (whole || 1));
  return [
    make("div", { class: "meter", role: "img", "aria-label": ranked.map(([name, size]) => `${name} ${share(size)}`).join(", ") },
      ...ranked.map(([name, size]) => make("i", { style: { width: `${(100 * size) / (whole || 1)}%`, background: colourOfPart(name) }, title: name }))),
    make("ul", { class: "legend" }, ...ranked.map(([name, size]) => make("li", {}, key(`${name} ${formatBytes(size)} (${share(size)})`, colourOfPart(name))))),
  ];
}
