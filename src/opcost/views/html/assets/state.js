// What the reader has chosen, shared by all views and kept in the address, so that a link shows what its sender saw.

const USUAL = {
  view: "", sel: "", q: "", sort: "", part: "total", qty: "", shape: "", zoom: "", bytes: "iec", work: "macs", cols: "", ocols: "", tcols: "",
  theme: "auto", open: "", dev: "", dtype: "", graph: "", aliases: "", from: "", to: "", idle: "", tsort: "", oq: "", only: "", colour: "", unfold: "", phase: "", element: "", kind: "", tables: "", csort: "", copen: "", changed: "", base: "", across: "", up: "",
};
// Steps that the browser's Back undoes; everything else only replaces the address.
const STEPS = ["view", "zoom", "sel"];
// Selections that follow each other faster, as when an arrow key is down, are one step.
const WALK = 400;
const PAUSE = 150;
// A document that was written into a frame (`srcdoc`) has no address of its own.
const hasAddress = location.protocol !== "about:";

export const state = { ...USUAL };
const listeners = [];
let waiting = 0;
let walked = 0;

export function setState(changes) {
  const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
  if (!changed.length) return;
  const steps = changed.filter((name) => STEPS.includes(name));
  const selects = steps.length > 0 && steps.every((name) => name === "sel");
  const pushes = steps.length > 0 && !(selects && Date.now() - walked < WALK);
  if (steps.length) walked = selects ? Date.now() : 0;
  if (pushes && waiting) writeAddress();
  Object.assign(state, changes);
  if (pushes) writeAddress(true);
  tell(changed);
  // The address is replaced once per pause, since browsers limit how often it may change.
  if (!pushes) waiting ||= setTimeout(writeAddress, PAUSE);
}

function tell(changed) {
  const names = new Set(changed);
  for (const listen of listeners) listen(names);
}

export function whenChanged(listen) {
  listeners.push(listen);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = {};
  for (const name of Object.keys(USUAL)) found[name] = given.get(name) ?? USUAL[name];
  return found;
}

function writeAddress(pushes = false) {
  clearTimeout(waiting);
  waiting = 0;
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) if (value !== USUAL[name]) given.set(name, value);
  const text = given.toString();
  if (!hasAddress || text === location.hash.slice(1)) return;
  const address = text ? `#${text}` : location.pathname + location.search;
  if (pushes === true) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

export function followAddress() {
  Object.assign(state, readAddress());
  addEventListener("hashchange", () => {
    clearTimeout(waiting);
    waiting = 0;
    const found = readAddress();
    const changed = Object.keys(found).filter((name) => state[name] !== found[name]);
    Object.assign(state, found);
    if (changed.length) tell(changed);
  });
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
