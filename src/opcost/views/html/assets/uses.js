// How devices spent their time: computing, communicating, idle and why, as one bar for each, and what that says.

import { data } from "./data.js";
import { make } from "./dom.js";
import { formatShare, formatTime } from "./format.js";
import { key } from "./colours.js";

const PARTS = new Map([
  ["computing", "#0072b2"], ["communication alone", "#cc79a7"], ["copies alone", "#56b4e9"], ["idle: host-bound", "#d55e00"],
  ["idle: after synchronisation", "#e69f00"], ["idle: waiting for input", "#b8a800"], ["idle: launch latency", "#8a929c"], ["idle: blocked after launch", "#5d6670"], ["idle: long launch calls", "#994f00"], ["idle", "#c4c9d0"],
]);

const color = (name) => PARTS.get(name.replace(/ \(.*/, ""));

export function usesPanel() {
  const bars = data.uses.map((use) => make("div", { class: "use" },
    make("h2", { text: use.title }),
    use.parts.length && make("div", { class: "meter", role: "img", "aria-label": use.parts.map(([name, time]) => `${name} ${formatShare(time / use.span)}`).join(", ") },
      ...use.parts.map(([name, time]) => make("i", { title: name, style: { width: `${(100 * time) / use.span}%`, background: color(name) } }))),
    make("ul", { class: "legend" }, ...use.parts.map(([name, time]) => make("li", {}, key(`${name} ${formatTime(time)} (${formatShare(time / use.span)})`, color(name))))),
    ...use.sentences.map((text) => make("p", { class: "faint", text }))));
  return make("section", { class: "panel uses", "aria-label": "How devices were used" }, ...bars, ...gains());
}

// Potential savings, the largest first, with what to do and the command that shows more.
function gains() {
  if (!data.gains.found.length) return [];
  return [
    make("h2", { class: "next", text: data.gains.title }),
    make("ol", { class: "gains" }, ...data.gains.found.map((gain) => make("li", {},
      make("b", { text: `${formatTime(Math.round(gain.time))} (${formatShare(gain.share)}) ${gain.what}` }), ` ${gain.advice} `, make("code", { text: gain.command })))),
  ];
}
