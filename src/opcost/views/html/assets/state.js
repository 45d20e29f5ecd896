// What the reader has chosen, shared by all views and kept in the address, so that a link shows what its sender saw.

const USUAL = {
  view: "", sel: "", q: "", sort: "", part: "total", qty: "", shape: "", zoom: "", bytes: "iec", work: "macs",
  theme: "auto", open: "", dev: "", dtype: "", graph: "", from: "", to: "", tsort: "", oq: "", only: "", tables: "", csort: "", copen: "", changed: "",
};

export const state = { ...USUAL };
const listeners = [];
let waiting = false;

export function setState(changes) {
  const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
  if (!changed.length) return;
  Object.assign(state, changes);
  const names = new Set(changed);
  for (const listen of listeners) listen(names);
  if (!waiting) {
    // The address is written once per pause, since browsers limit how often it may change.
    waiting = true;
    setTimeout(writeAddress, 150);
  }
}

export function whenChanged(listen) {
  listeners.push(listen);
}

export function readAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  const found = {};
  for (const name of Object.keys(USUAL)) found[name] = told.get(name) ?? USUAL[name];
  return found;
}

function writeAddress() {
  waiting = false;
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== USUAL[name]) told.set(name, value);
  const text = told.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

export function followAddress() {
  Object.assign(state, readAddress());
  addEventListener("hashchange", () => setState(readAddress()));
}

// How the tables below the views are sorted, by what they are filtered: entries by the table's place, as one text.
export function tableState(place) {
  const found = state.tables.split("|").map((entry) => entry.split("~")).find(([name]) => name === String(place));
  return { sort: found?.[1] ?? "", find: decoded(found?.[2] ?? "") };
}

// A link may have been cut or written by hand.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

export function setTableState(place, { sort, find }) {
  const others = state.tables.split("|").filter((entry) => entry && entry.split("~")[0] !== String(place));
  const own = sort || find ? [`${place}~${sort}~${encodeURIComponent(find).replaceAll("~", "%7E")}`] : [];
  setState({ tables: [...others, ...own].join("|") });
}
