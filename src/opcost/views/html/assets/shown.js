// What tree, map and graph show: repeated blocks as one, and amounts of the operators that pass the filters alone.

import { familyOf } from "./colours.js";
import { data, ops, tree } from "./data.js";
import { setState, state, whenChanged } from "./state.js";

const MOST_KEPT = 400;

// -- filters: by phase, element type and family of the operator -----------------------------------------------------

// A report without phases is of one forward pass; those of a profile's operators are not known.
const phaseOf = ops?.of.phase ?? (tree?.operators ? null : () => "forward");

const familyOfRow = ops ? Array.from({ length: ops.count }, (_, row) => familyOf(ops.of.kind(row), phaseOf?.(row))) : [];

export const familyOfOperator = (row) => familyOfRow[row];

// A line of a profile is of operators with inputs of several types, so that its times cannot be divided by them.
const FILTERS = { phase: phaseOf, element: tree?.operators ? null : ops?.of.dtype, kind: familyOfOperator };

const active = () => (ops ? Object.entries(FILTERS).filter(([name, of]) => of && state[name]) : []);

export const isFiltered = () => active().length > 0;

export const isShownOp = (row) => shown().shows(row);

// The values that a filter may have, in the order in which operators have them first.
export function choicesOf(name) {
  if (!ops || !FILTERS[name]) return [];
  const found = new Set();
  for (let row = 0; row < ops.count; row += 1) found.add(FILTERS[name](row));
  found.delete("");
  return [...found];
}

// The family with the most work among the operators of a node itself, and among all below it; "" without operators.
export const ownFamily = (node) => (ops ? dominant().own[node] : "");

export const totalFamily = (node) => dominant().total[node];

const isKernel = (node) => tree.operators && tree.type(node) === "kernel";

let families = null;

function dominant() {
  if (families) return families;
  const work = new Map();
  for (let row = 0; row < ops.count; row += 1) {
    const family = familyOfRow[row];
    let sums = work.get(family);
    if (!sums) work.set(family, (sums = new Float64Array(tree.count)));
    // What moves or computes nothing, or has no cost, still has a family.
    sums[ops.module[row]] += 1 + (ops.of.flops(row) ?? 0) + (ops.of.bytes(row) ?? 0);
  }
  const most = (sums) => Array.from({ length: tree.count }, (_, node) => {
    let [best, least] = ["", 0];
    for (const [family, found] of sums) if (found[node] > least) [best, least] = [family, found[node]];
    return best;
  });
  const own = most(work);
  // A kernel is of the family of the operator that launched it.
  for (let node = 1; node < tree.count; node += 1) if (isKernel(node)) own[node] = own[tree.parent[node]];
  families = { own, total: most(new Map([...work].map(([family, own]) => [family, summed(own)]))) };
  return families;
}

// -- repeated blocks: of a run of equal siblings the first one represents all -----------------------------------------

// The first node of the run that a node is in, or -1.
const runOf = new Int32Array(tree?.count ?? 0).fill(-1);
const lastOf = new Map();
for (const [first, length] of data.tree?.runs ?? []) {
  const siblings = tree.children[tree.parent[first]];
  const place = siblings.indexOf(first);
  for (const node of siblings.slice(place, place + length)) runOf[node] = first;
  lastOf.set(first, siblings[place + length - 1]);
}

const unfolded = () => new Set(state.unfold.split(".").filter(Boolean).map((text) => parseInt(text, 36)));

// Blocks that are alike have their children in the same order, so those of a merged one are found by their places.
function represent() {
  const single = unfolded();
  const rep = new Int32Array(tree.count);
  const walk = [0];
  while (walk.length) {
    const node = walk.pop();
    const twins = tree.children[rep[node]];
    const children = tree.children[node];
    children.forEach((child, place) => {
      const first = runOf[child];
      rep[child] = rep[node] !== node ? rep[twins[place]] : first >= 0 && !single.has(first) ? first : child;
    });
    for (let place = children.length - 1; place >= 0; place -= 1) walk.push(children[place]);
  }
  return rep;
}

const keep = (single) => single.size <= MOST_KEPT && setState({ unfold: [...single].map((node) => node.toString(36)).join(".") });

export const beginsRun = (node) => lastOf.has(node);

export const isUnfolded = (node) => runOf[node] >= 0 && unfolded().has(runOf[node]);

export const unfold = (node) => runOf[node] >= 0 && keep(unfolded().add(runOf[node]));

export function fold(node) {
  const single = unfolded();
  if (single.delete(runOf[node])) keep(single);
}

export const foldAll = () => setState({ unfold: "" });

// -- both --------------------------------------------------------------------------------------------------------------

// An own amount is what the operators of a column of the list, or of the nodes themselves, add up to.
function filteredOwn(name, passes) {
  const own = tree.own[name];
  if (tree.operators) return own.map((amount, node) => (passes.nodes[node] ? amount : 0));
  const one = { ops: () => 1, uncounted: (row) => (ops.of.flops(row) === null ? 1 : 0) }[name];
  const times = ops.of.repeat ?? (() => 1);
  const amount = one ?? (ops.of[name] && ((row) => (ops.of[name](row) ?? 0) * times(row)));
  if (!amount) return own;
  const found = new Float64Array(tree.count);
  for (let row = 0; row < ops.count; row += 1) if (passes.rows[row]) found[ops.module[row]] += amount(row);
  return found;
}

function passing() {
  const rows = new Uint8Array(ops.count).fill(1);
  const nodes = new Uint8Array(tree.count);
  for (const [name, of] of active()) {
    const wanted = state[name];
    for (let row = 0; row < ops.count; row += 1) if (of(row) !== wanted) rows[row] = 0;
  }
  for (let row = 0; row < ops.count; row += 1) if (rows[row]) nodes[ops.module[row]] = 1;
  for (let node = 1; node < tree.count; node += 1) if (isKernel(node)) nodes[node] = nodes[tree.parent[node]];
  return { rows, nodes };
}

function summed(own) {
  const sums = own.slice();
  for (let node = tree.count - 1; node > 0; node -= 1) sums[tree.parent[node]] += sums[node];
  return sums;
}

// Amounts by quantity, of which most are not in sight: each is made when it is first asked for.
function lazily(make) {
  const found = {};
  for (const { name } of tree.quantities) {
    Object.defineProperty(found, name, { configurable: true, get: () => Object.defineProperty(found, name, { value: make(name) })[name] });
  }
  return found;
}

function build() {
  const rep = represent();
  const merged = tree.count > 0 && rep.some((found, node) => found !== node);
  const times = new Int32Array(tree.count);
  for (const found of rep) times[found] += 1;
  const together = (amounts) => {
    if (!merged) return amounts;
    const found = new Float64Array(tree.count);
    for (let node = 0; node < tree.count; node += 1) found[rep[node]] += amounts[node];
    return found;
  };
  const passes = isFiltered() ? passing() : null;
  const single = passes ? lazily((name) => filteredOwn(name, passes)) : tree.own;
  const own = lazily((name) => together(single[name]));
  const total = lazily((name) => together(single[name] === tree.own[name] ? tree.total[name] : summed(single[name])));
  const matches = passes ? together(summed(Float64Array.from(passes.nodes))) : null;
  const children = merged ? tree.children.map((all) => all.filter((child) => rep[child] === child)) : tree.children;
  // Whether a node is the first of several siblings and shown for all of them.
  const isRun = (node) => lastOf.has(node) && rep[lastOf.get(node)] === node;
  const label = (node) => (isRun(node) ? `${tree.name(node)}–${tree.name(lastOf.get(node))}` : tree.name(node));
  const path = (node) => (times[node] < 2 ? tree.path[node] : tree.parent[node] ? `${path(tree.parent[node])}${data.tree.joint}${label(node)}` : label(node));
  return {
    rep, own, total, label, path, isRun,
    children: (node) => children[node],
    times: (node) => times[node],
    typeOf: (node) => (times[node] > 1 ? `${times[node]} × ${tree.type(node)}` : tree.type(node)),
    shows: (row) => !passes || passes.rows[row] === 1,
    // Whether no operator below a node passes the filters.
    isEmpty: (node) => Boolean(matches) && matches[node] === 0,
  };
}

// The state that `shown` depends on.
export const SHOWN_STATE = ["unfold", ...Object.keys(FILTERS)];

let built = null;

// The tree as it is shown now: the same object until a block is unfolded or a filter changes.
export const shown = () => (built ??= build());

whenChanged((names) => { if (SHOWN_STATE.some((name) => names.has(name))) built = null; });
