// How devices spent their time: computing, communicating, idle and why, as one bar for each, and what to do about it.

import { key } from "./colours.js";
import { data } from "./data.js";
import { make } from "./dom.js";
import { formatShare, formatTime } from "./format.js";
import { setState, setTableState, tableState } from "./state.js";
import { longestIdle } from "./timeline.js";

const PARTS = new Map([
  ["computing", "#0072b2"], ["communication alone", "#cc79a7"], ["pipeline bubble", "#882255"], ["copies alone", "#56b4e9"], ["idle: host-bound", "#d55e00"],
  ["idle: after synchronisation", "#e69f00"], ["idle: waiting for input", "#b8a800"], ["idle: launch latency", "#8a929c"], ["idle: blocked after launch", "#5d6670"], ["idle: long launch calls", "#994f00"], ["idle", "#c4c9d0"],
]);

const color = (name) => PARTS.get(name.replace(/ \(.*/, ""));

export function usesPanel() {
  const devices = data.uses.filter((use) => use.parts.length);
  const names = [...new Set(devices.flatMap((use) => use.parts.map(([name]) => name)))];
  return make("section", { class: "panel uses", "aria-label": "How devices were used" },
    ...data.uses.map((use) => useOf(use, devices.length === 1)),
    devices.length > 1 && make("ul", { class: "legend" }, ...names.map((name) => make("li", {}, key(name, color(name))))),
    ...gains());
}

// One device, or those that are alike; the only one of a page with all its amounts, of several they are in the tables.
function useOf(use, isAlone) {
  const texts = use.parts.map(([name, time]) => `${name} ${formatTime(time)} (${formatShare(time / use.span)})`);
  const [, name, rest] = use.title.match(/^(.*?)(?:: (.*))?$/);
  return make("div", { class: "use" },
    make("h2", {}, name, rest && make("span", { class: "rest", text: `: ${rest}` })),
    use.parts.length > 0 && make("div", { class: "meter", role: "img", "aria-label": texts.join(", ") },
      ...use.parts.map(([name, time], place) => make("i", { title: texts[place], style: { width: `${(100 * time) / use.span}%`, background: color(name) } }))),
    isAlone && make("ul", { class: "legend" }, ...use.parts.map(([name], place) => make("li", {}, key(texts[place], color(name))))),
    use.sentences.length > 0 && make("p", { class: "faint", text: use.sentences.join(" · ") }));
}

// Potential savings, the largest first, with what to do, the view that shows it, and the command that shows more.
function gains() {
  if (!data.gains.found.length) return [];
  return [
    make("h2", { class: "next", text: data.gains.title }),
    make("ol", { class: "gains" }, ...data.gains.found.map((gain) => make("li", {},
      make("b", { text: `${formatTime(Math.round(gain.time))} (${formatShare(gain.share)}) ${gain.what}` }), ` ${gain.advice} `,
      gain.show && make("button", { type: "button", class: "plain", text: `show in ${titleOf(gain.show)}`, on: { click: () => SHOW[gain.show.view](gain.show) } }), " ",
      make("code", { text: gain.command })))),
  ];
}

const titleOf = (show) => (show.view === "table" ? data.tables[show.place].title : `the ${show.view}`);

function goTo(id) {
  const panel = document.getElementById(id);
  panel.scrollIntoView({ block: "start" });
  panel.querySelector(".grid, canvas")?.focus({ preventScroll: true });
}

const SHOW = {
  // The timeline at the longest time in which a device had nothing to do.
  timeline: () => {
    const [from, to] = longestIdle();
    const around = (to - from) / 2;
    setState({ from: String(Math.max(0, Math.round(from - around))), to: String(Math.round(to + around)), idle: `${from}-${to}` });
    goTo("timeline");
  },
  operators: ({ find }) => {
    setState({ view: "operators", oq: find, tsort: "-whole" });
    goTo("view-operators");
  },
  table: ({ place, find }) => {
    setTableState(place, { sort: tableState(place).sort, find });
    goTo(`table-${place}`);
  },
};
