// Puts the views together that the data has something for, and shows one of them beside the tree.

import { comparedModulesPanel, totalsPanel } from "./compared.js";
import { data, ops, tree } from "./data.js";
import { detailsPanel } from "./details.js";
import { make } from "./dom.js";
import { fitPanel } from "./fit.js";
import { byteUnits } from "./format.js";
import { graphPanel } from "./graph.js";
import { headerOf, notesOf } from "./header.js";
import { mapPanel } from "./map.js";
import { memoryPanel } from "./memory.js";
import { treePanel } from "./modules.js";
import { operatorsPanel } from "./operators.js";
import { planPanel } from "./plan.js";
import { rooflinePanel } from "./roofline.js";
import { hasScatter, scatterPanel } from "./scatter.js";
import { followSource } from "./served.js";
import { followAddress, setState, state, whenChanged } from "./state.js";
import { sweepPanel } from "./sweep.js";
import { leadPanel, tablePanels } from "./tables.js";
import { timelinePanel } from "./timeline.js";
import { usesPanel } from "./uses.js";

const VIEWS = [
  ["map", "Map", () => tree, mapPanel],
  ["graph", "Graph", () => data.graph, graphPanel],
  ["memory", "Memory", () => data.memory, memoryPanel],
  ["roofline", "Roofline", () => ops && data.devices, rooflinePanel],
  ["operators", "Operators", () => ops, operatorsPanel],
];

function wear() {
  if (state.theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = state.theme;
  byteUnits.chosen = state.bytes === "si" ? "si" : "iec";
}

function viewsPanel() {
  const views = VIEWS.filter(([, , has]) => has());
  const current = () => (views.some(([name]) => name === state.view) ? state.view : views[0][0]);
  const tabs = make("div", { role: "tablist", class: "tabs", "aria-label": "Views" });
  const panels = make("div", { class: "views" });
  const built = new Set();
  for (const [name, title] of views) {
    tabs.append(make("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}`, text: title, on: { click: () => setState({ view: name }) },
    }));
    panels.append(make("div", { role: "tabpanel", id: `view-${name}`, "aria-labelledby": `tab-${name}`, "data-title": title }));
  }
  const build = (name) => {
    if (built.has(name)) return;
    built.add(name);
    document.getElementById(`view-${name}`).append(views.find((view) => view[0] === name)[3]());
  };
  const show = () => {
    views.forEach(([name], place) => {
      const shown = name === current();
      tabs.children[place].setAttribute("aria-selected", String(shown));
      tabs.children[place].tabIndex = shown ? 0 : -1;
      panels.children[place].hidden = !shown;
    });
  };
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (views.findIndex(([name]) => name === current()) + step + views.length) % views.length;
    setState({ view: views[next][0] });
    tabs.children[next].focus();
    event.preventDefault();
  });
  // A view is made when it is first looked at; on paper all of them are.
  whenChanged((names) => {
    if (!names.has("view")) return;
    show();
    build(current());
  });
  addEventListener("beforeprint", () => views.forEach(([name]) => name !== "operators" && build(name)));
  show();
  return { element: make("section", { class: "panel side", "aria-label": "Views" }, tabs, panels), start: () => build(current()) };
}

followAddress();
wear();
// Before every other listener, so that those that draw do so in the new units.
whenChanged((names) => (names.has("theme") || names.has("bytes")) && wear());
const main = make("main");
const views = tree ? viewsPanel() : null;
if (tree) main.append(make("div", { class: "pair" }, treePanel(), views.element), detailsPanel());
// Of a profile, first how its devices were used, then the lines of the answer.
if (data.uses) main.prepend(...[data.uses.length ? usesPanel() : null, leadPanel()].filter(Boolean));
if (data.timeline) main.append(timelinePanel());
if (data.compared?.totals.length) main.append(...[totalsPanel(), hasScatter() ? scatterPanel() : null].filter(Boolean));
if (data.compared?.paths.length) main.append(comparedModulesPanel());
if (data.sweep) main.append(sweepPanel());
if (data.plan) main.append(planPanel());
if (data.fit) main.append(fitPanel());
main.append(...tablePanels(data.uses ? 1 : 0));
document.body.append(headerOf(), main, ...[notesOf()].filter(Boolean));
views?.start();
document.documentElement.dataset.ready = "yes";
followSource();
