// What the page is about: the source, the totals, under which conventions, and what is missing from them.

import { chipsOf } from "./chips.js";
import { data } from "./data.js";
import { make, switcher } from "./dom.js";
import { formatAs } from "./format.js";
import { setState, state, whenChanged } from "./state.js";

export function headerOf() {
  return make("header", {},
    make("div", { class: "top" }, make("h1", { text: data.title }), settings()),
    data.facts.length ? make("dl", { class: "facts" }, ...data.facts.map(([name, value]) => make("div", {}, ...(name ? [make("dt", { text: name })] : []), make("dd", { text: value })))) : null,
    chipsOf(),
    totalsOf(),
    ...data.alerts.map((alert) => told(alert, "alert")));
}

// A few large figures; behind a button all totals with their exact numbers and what they mean.
function totalsOf() {
  const figures = make("dl", { class: "figures" });
  const all = make("dl", { class: "totals" });
  const show = () => {
    const amount = (total) => `${total.partial ? "≥" : ""}${formatAs(total.unit, total.value)}`;
    figures.replaceChildren(...data.totals.filter((total) => total.large).map((total) =>
      make("div", { class: total.partial ? "partial" : null, title: total.remark || null },
        make("dt", { text: total.label }), make("dd", { text: amount(total) }))));
    all.replaceChildren(...data.totals.map((total) =>
      make("div", { class: total.partial ? "partial" : null },
        make("dt", { text: total.label }), make("dd", { text: amount(total) }), make("dd", { class: "exact", text: total.exact }), make("dd", { class: "remark", text: total.remark }))));
  };
  show();
  whenChanged((names) => names.has("bytes") && show());
  if (!data.totals.length) return null;
  return make("div", { class: "counted" }, figures, make("details", { class: "all" }, make("summary", { text: "all totals" }), all));
}

export function notesOf() {
  if (!data.notes.length) return null;
  return make("footer", { class: "notes" }, ...data.notes.map((note) => told(note, "note")));
}

function told(section, kind) {
  return make("section", { class: kind, role: kind === "alert" ? "note" : null, "aria-label": section.title },
    section.title ? make("h2", { text: section.title }) : null,
    make("ul", {}, ...section.lines.map((line) => make("li", { text: line }))),
    section.hint ? make("p", { class: "faint", text: section.hint }) : null);
}

function settings() {
  const groups = { bytes: switcher("Units of bytes", [["iec", "KiB"], ["si", "kB"]], state.bytes, (bytes) => setState({ bytes })) };
  if (data.tree?.quantities.some((quantity) => quantity.name === "macs")) {
    groups.work = switcher("Work in", [["macs", "MACs"], ["flops", "FLOPs"]], state.work, (work) => setState({ work }));
  }
  groups.theme = switcher("Colours", [["auto", "auto"], ["light", "light"], ["dark", "dark"]], state.theme, (theme) => setState({ theme }));
  whenChanged((names) => Object.entries(groups).forEach(([name, group]) => names.has(name) && group.show(state[name])));
  return make("div", { class: "settings" }, ...Object.values(groups));
}
