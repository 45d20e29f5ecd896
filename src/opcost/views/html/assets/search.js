// Finds modules by words of their names and paths, by type with `type:`; what is found is the same in all views.

import { tree } from "./data.js";
import { make } from "./dom.js";
import { shown } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";

const BY_TYPE = "type:";
const written = (count) => count.toLocaleString("en-US");

let lowered = null;
let found = { query: "", now: null, hits: [], lines: new Set() };

// Paths in lower letters are made once, since they are searched at every key.
function paths() {
  lowered ??= tree.path.map((path, node) => (node ? path : tree.name(0)).toLowerCase());
  return lowered;
}

// The modules that have all words. What is below a hit has its path too, and is a hit only if its own name has a word.
export function matches(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const types = words.filter((word) => word.startsWith(BY_TYPE)).map((word) => word.slice(BY_TYPE.length)).filter(Boolean);
  const names = words.filter((word) => !word.startsWith(BY_TYPE));
  if (!names.length && !types.length) return [];
  const all = paths();
  const hasAll = (node) => names.every((word) => all[node].includes(word)) && types.every((word) => (tree.type(node) ?? "").toLowerCase().includes(word));
  const hits = [];
  for (let node = 0; node < tree.count; node += 1) {
    if (!hasAll(node)) continue;
    const isBelow = names.length > 0 && tree.parent[node] > 0 && hasAll(tree.parent[node]);
    if (!isBelow || names.some((word) => tree.name(node).toLowerCase().includes(word))) hits.push(node);
  }
  return hits;
}

function search() {
  const now = shown();
  if (found.query === state.q && found.now === now) return found;
  const nodes = found.query === state.q ? found.hits : matches(state.q);
  found = { query: state.q, now, hits: nodes, lines: new Set(nodes.map((node) => now.rep[node])) };
  return found;
}

// The modules that are found, of which merged blocks have several on a line.
export const hits = () => search().hits;

// The lines, areas and boxes that they are shown in.
export const hitLines = () => search().lines;

export const isHit = (node) => hitLines().has(node);

// The field, the number of hits, and what to try where there is none; `walk(1)` and `walk(-1)` choose the next and the last hit.
export function searchField(walk) {
  const field = make("input", {
    type: "search", placeholder: "find by name  /", "aria-label": `Find a ${tree.noun}`, "aria-keyshortcuts": "/",
    title: "words of names and paths; type:conv2d for types; / goes here, Enter to the next hit, Shift+Enter back, Escape clears",
  });
  const output = make("output");
  const other = make("button", { type: "button", class: "plain", hidden: true, on: { click: () => setState({ q: BY_TYPE + state.q }) } });
  const show = () => {
    if (field.value.trim().toLowerCase() !== state.q) field.value = state.q;
    const count = hits().length;
    const typed = state.q && !count && !/[\s:]/.test(state.q) ? matches(BY_TYPE + state.q).length : 0;
    const lines = hitLines().size;
    output.textContent = state.q ? `${written(count)} ${count === 1 ? "hit" : "hits"}${lines < count ? `, ${written(lines)} ${lines === 1 ? "line" : "lines"}` : ""}` : "";
    other.hidden = !typed;
    other.textContent = `${written(typed)} with ${BY_TYPE}${state.q}`;
  };
  field.addEventListener("input", () => setState({ q: field.value.trim().toLowerCase() }));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") walk(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      field.value = "";
      setState({ q: "" });
    } else return;
    event.preventDefault();
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    field.focus();
    field.select();
    event.preventDefault();
  });
  whenChanged((names) => ["q", "unfold"].some((name) => names.has(name)) && show());
  show();
  return [make("span", { class: "find" }, field, output), other];
}
