// What the graph consists of: phases, modules, operators, inputs and outputs as boxes in boxes, and the tensors between those
// that are shown. Repeated blocks are one box, views are left out on request, and many boxes of one level are put in parts.

import { data, ops, tree } from "./data.js";
import { familyOfOperator, shown, totalFamily } from "./shown.js";
import { state } from "./state.js";

const MOST_IN_LEVEL = 40;
const PARTS = 20;
const SLICE = 4096;
const PHASES = ["forward", "backward", "recompute", "update"];

const ends = data.graph?.ends ?? [];
// The maker and the reader of each tensor, and which of the maker's results it is; what comes after the operators are the ends.
const edges = data.graph ? unpacked(data.graph) : null;

function unpacked({ step, back, result }) {
  const from = new Int32Array(step.length);
  const to = new Int32Array(step.length);
  let at = 0;
  step.forEach((by, place) => {
    at += by;
    to[place] = at;
    from[place] = back[place] < 0 ? ops.count - 1 - back[place] : at - back[place];
  });
  return { from, to, result };
}

const phaseOf = (row) => ops.of.phase?.(row) ?? "forward";
const callsOf = tree?.details.find(({ name }) => name === "calls")?.of ?? (() => 1);

// The operators that are shown, by phase, and what they read; of merged blocks those of the first one, with the work of all.
export function* model(work) {
  const now = shown();
  const isHidden = (row) => !state.aliases && ops.of.kind(row) === "view";
  const twin = new Int32Array(ops.count).fill(-1);
  const amount = new Float64Array(ops.count);
  const [firsts, reached] = [new Map(), new Map()];
  const rows = new Map();
  let whole = 0;
  const isLeftOut = (row) => Boolean(state.phase) && phaseOf(row) !== state.phase;
  const slotOf = (row, module) => PHASES.indexOf(phaseOf(row)) * tree.count + module;
  for (let row = 0; row < ops.count; row += 1) {
    if (row % SLICE === 0) yield;
    const module = ops.module[row];
    if (now.rep[module] !== module || isLeftOut(row)) continue;
    twin[row] = row;
    if (now.times(module) > 1) listed(firsts, slotOf(row, module)).push(row);
    if (!isHidden(row)) listed(rows, phaseOf(row)).push(row);
  }
  // Blocks that are alike have their operators in the same order; gradients are of the last block first.
  for (let row = 0; row < ops.count; row += 1) {
    if (row % SLICE === 0) yield;
    if (isLeftOut(row)) continue;
    const module = ops.module[row];
    if (now.rep[module] !== module) {
      const same = listed(firsts, slotOf(row, now.rep[module]));
      const slot = slotOf(row, module);
      const at = reached.get(slot) ?? 0;
      reached.set(slot, at + 1);
      twin[row] = same[Math.min(at, same.length - 1)] ?? -1;
    }
    const done = (ops.of[work](row) ?? 0) * (ops.of.repeat?.(row) ?? 1);
    if (twin[row] >= 0) amount[twin[row]] += done;
    whole += done;
  }
  const phases = PHASES.filter((phase) => rows.has(phase));
  const found = { now, twin, amount, whole: whole || 1, phases };
  const sources = yield* makers(twin, isHidden);
  yield totalFamily(0); // which is found for all modules at once
  const inside = [];
  for (const phase of phases) {
    const all = Int32Array.from(rows.get(phase));
    yield;
    inside.push(moduleBox(found, phase, 0, all, { name: phases.length > 1 ? phase : null }));
    yield;
  }
  return { ...found, sources, root: rootOf(inside, joinedEnds(sources)) };
}

function listed(lists, key) {
  if (!lists.has(key)) lists.set(key, []);
  return lists.get(key);
}

// What operators and ends read, through views that are hidden: of each tensor its maker, its reader, the maker's result, and
// the operator whose result has the shape that its module returns.
function* makers(twin, isHidden) {
  const through = new Map();
  const found = [];
  for (let place = 0; place < edges.to.length; place += 1) {
    if (place % SLICE === 0) yield;
    const [from, to] = [edges.from[place], edges.to[place]];
    if ((from < ops.count && twin[from] < 0) || (to < ops.count && twin[to] < 0)) continue;
    const all = from < ops.count && isHidden(from) ? (through.get(from) ?? []) : [from, edges.result[place], from];
    const isView = to < ops.count && isHidden(to);
    if (isView && !through.has(to)) through.set(to, []);
    for (let at = 0; at < all.length; at += 3) {
      if (!isView) found.push(all[at], to, all[at + 1], all[at + 2]);
      else through.get(to).push(all[at], all[at + 1], ops.module[all[at]] === ops.module[to] ? to : all[at + 2]);
    }
  }
  return found;
}

// -- boxes: what is in one of them is found when it is opened -----------------------------------------------------------

// The inputs and outputs that what is shown has to do with.
function joinedEnds(sources) {
  const joined = new Set();
  for (let place = 0; place < sources.length; place += 4) {
    for (const at of [sources[place], sources[place + 1]]) if (at >= ops.count) joined.add(at - ops.count);
  }
  return joined;
}

function rootOf(inside, joined) {
  const [root] = inside.length === 1 ? inside : [{ kind: "phases", module: 0, below: () => inside }];
  const endsThat = (input) => ends.flatMap((end, at) => (end.input === input && joined.has(at) ? [{ id: `e${at}`, kind: "end", end: at, module: -1, title: end.name }] : []));
  return { ...root, id: "", below: () => [...endsThat(true), ...root.below(), ...endsThat(false)] };
}

function moduleBox(found, phase, module, rows, { name = null, calls = "" } = {}) {
  const { now, amount, whole } = found;
  const names = [];
  let at = module;
  let inside = null;
  // A module that has nothing but another one is that other one, by the names of both.
  for (;;) {
    if (at) names.push(now.label(at));
    inside = partsOf(phase, at, rows);
    if (inside.count !== 1 || inside.child(0) < 0 || (!at && name === null)) break;
    at = inside.child(0);
  }
  let work = 0;
  for (const row of rows) work += amount[row];
  return {
    id: idOf(phase, at, calls), around: idOf(phase, tree.parent[at], calls), kind: name === null ? "module" : "phase", module: at, from: module, rows,
    title: name ?? (names.join(".") || tree.name(0)), type: name === null ? now.typeOf(at) : "", times: now.isRun(at) ? now.times(at) : 1,
    work, share: work / whole, family: phase === "update" ? "optimizer" : totalFamily(at),
    below: rows.length > 1 ? memo(() => numbered(grouped({ found, phase, module: at, inside, calls }, 0, inside.count))) : null,
  };
}

// Of a module, its phase, and which of the calls of it and of those around it it is, where there are several.
const idOf = (phase, module, calls) => `${phase === "forward" ? "" : `${phase[0]}-`}${module.toString(36)}${calls}`;

function memo(make) {
  let made = null;
  return () => (made ??= make());
}

// The operators of a module, and modules below it, in the order of execution. A module that is called again is there again, and
// a list of modules, which is not called itself, as often as something else comes between; gradients are not in such an order.
function partsOf(phase, module, rows) {
  const childOf = new Map([[module, -1]]);
  const climb = (node) => {
    let at = node;
    while (!childOf.has(at) && tree.parent[at] !== module) at = tree.parent[at];
    const child = childOf.get(at) ?? at;
    for (let below = node; below !== at; below = tree.parent[below]) childOf.set(below, child);
    childOf.set(at, child);
    return child;
  };
  const begins = [];
  const children = [];
  const call = [];
  const [known, times] = [new Map(), new Map()];
  let others = null;
  let last = -1;
  for (let at = 0; at < rows.length; at += 1) {
    const node = ops.module[rows[at]];
    const child = childOf.get(node) ?? climb(node);
    if (!at || child < 0 || child !== last) {
      const place = phase !== "forward" && child >= 0 && callsOf(child) ? known.get(child) : undefined;
      if (place !== undefined && place !== children.length - 1) others ??= begins.map((begin, part) => [...rows.subarray(begin, begins[part + 1] ?? at)]);
      if (place === undefined) {
        known.set(child, children.length);
        children.push(child);
        call.push(times.get(child) ?? 0);
        times.set(child, call.at(-1) + 1);
        begins.push(at);
        others?.push([]);
      }
    }
    last = child;
    others?.[child < 0 ? others.length - 1 : known.get(child)].push(rows[at]);
  }
  const between = (place, end) => (others ? Int32Array.from(others.slice(place, end).flat()) : rows.subarray(begins[place], begins[end] ?? rows.length));
  return { count: children.length, child: (place) => children[place], call: (place) => call[place], rows: (place, end = place + 1) => between(place, end) };
}

// So many that nobody reads them are put in parts.
function grouped(within, begin, end) {
  const { found, phase, module, inside, calls } = within;
  const count = end - begin;
  const single = (at) => {
    const child = inside.child(at);
    if (child < 0) return operatorBox(inside.rows(at)[0], module);
    return moduleBox(found, phase, child, inside.rows(at), { calls: inside.call(at) ? `${calls}-${child.toString(36)}_${inside.call(at)}` : calls });
  };
  if (count <= MOST_IN_LEVEL) return Array.from({ length: count }, (_, at) => single(begin + at));
  const size = Math.ceil(count / Math.min(PARTS, Math.ceil(count / PARTS)));
  return Array.from({ length: Math.ceil(count / size) }, (_, at) => {
    const [first, last] = [begin + at * size, Math.min(end, begin + (at + 1) * size)];
    return {
      id: `${idOf(phase, module, calls)}*${first}-${last}`, kind: "part", module, rows: inside.rows(first, last), title: `${single(first).title} … ${single(last - 1).title}`,
      type: `${(last - first).toLocaleString("en-US")} boxes`, below: memo(() => grouped(within, first, last)),
    };
  });
}

const operatorBox = (row, module) => ({ id: `o-${row.toString(36)}`, kind: "operator", row, module, rows: [row], title: ops.of.raw(row).replace(/^\w+::_*/, ""), family: familyOfOperator(row) });

// Modules that are called again are told apart.
function numbered(boxes) {
  const seen = new Map();
  for (const box of boxes) {
    if (box.kind !== "module") continue;
    const times = (seen.get(box.title) ?? 0) + 1;
    seen.set(box.title, times);
    if (times > 1) box.title += ` (${times})`;
  }
  return boxes;
}

// -- what is shown: boxes with their children, and nets between them ---------------------------------------------------

// `opened` has the names of opened boxes; `sized(box)` gives each box its size, and `labelWidth(text)` is that of a label.
export function* sceneOf(found, opened, sized, labelWidth) {
  const boxes = [];
  const boxOfRow = new Int32Array(ops.count).fill(-1);
  const boxOfEnd = new Int32Array(ends.length).fill(-1);
  function* add(given, parent) {
    const box = { ...given, place: boxes.length, parent, children: null, nets: [] };
    boxes.push(box);
    if (given.below && (!parent || opened.has(given.id))) {
      const inside = given.below();
      yield;
      box.children = [];
      for (const child of inside) box.children.push(yield* add(child, box));
    } else if (given.kind === "end") boxOfEnd[given.end] = box.place;
    else for (const row of given.rows) boxOfRow[row] = box.place;
    return box;
  }
  const root = yield* add(found.root, null);
  yield;
  const boxOf = (at) => (at < ops.count ? boxOfRow[found.twin[at]] : boxOfEnd[at - ops.count]);
  yield* route(found, boxes, boxOf, labelWidth);
  for (const box of boxes) sized(box);
  return { root, boxes };
}

// Tensors with the same maker and the same readers are one net; it goes up to the box that has both and down again.
function* route(found, boxes, boxOf, labelWidth) {
  const { sources, twin } = found;
  const tensors = new Map();
  for (let place = 0; place < sources.length; place += 4) {
    if (place % (4 * SLICE) === 0) yield;
    const [from, to, result, shaped] = [sources[place], sources[place + 1], sources[place + 2], sources[place + 3]];
    let [a, b] = [boxOf(from), boxOf(to)];
    if (a < 0 || b < 0 || a === b || betweenTwins(found, from, to)) continue;
    [a, b] = acrossPhases(found, boxes, from, to, a, b);
    if (a === b) continue;
    const key = from < ops.count ? (twin[from] < 0 ? from : twin[from]) * 64 + Math.min(result, 63) : -1 - from;
    let tensor = tensors.get(key);
    if (!tensor) tensors.set(key, (tensor = { makers: new Map(), shape: shapeOf(from, result, shaped) }));
    if (!tensor.makers.has(a)) tensor.makers.set(a, { readers: new Set(), made: new Set() });
    tensor.makers.get(a).readers.add(b);
    tensor.makers.get(a).made.add(from);
  }
  const nets = new Map();
  for (const { makers, shape } of tensors.values()) {
    for (const [maker, { readers, made }] of makers) {
      const all = [...readers].sort((a, b) => a - b);
      const key = `${maker}>${all.join(",")}`;
      if (!nets.has(key)) nets.set(key, { key, maker, readers: all, shapes: [] });
      // A merged block that is closed, and a phase, makes those of all blocks.
      const box = boxes[maker];
      const times = box.kind === "phase" || (box.times > 1 && !box.children) ? made.size : 1;
      nets.get(key).shapes.push(...new Array(times).fill(shape));
    }
  }
  yield;
  for (const net of nets.values()) {
    net.text = label(net.shapes);
    levels(net, boxes, labelWidth(net.text));
  }
}

// Whether both are in one of several blocks that are merged, and not in the same.
function betweenTwins({ now }, from, to) {
  if (from >= ops.count || to >= ops.count) return false;
  let [a, b] = [ops.module[from], ops.module[to]];
  if (a === b || (now.rep[a] === a && now.rep[b] === b && now.times(a) < 2 && now.times(b) < 2)) return false;
  while (tree.depth[a] > tree.depth[b]) a = tree.parent[a];
  while (tree.depth[b] > tree.depth[a]) b = tree.parent[b];
  while (a !== b && tree.parent[a] !== tree.parent[b]) [a, b] = [tree.parent[a], tree.parent[b]];
  return a !== b && now.rep[a] === now.rep[b];
}

// What a phase leaves for another, as saved activations, goes between the phases as a whole.
function acrossPhases({ phases }, boxes, from, to, a, b) {
  if (phases.length < 2 || from >= ops.count || to >= ops.count || phaseOf(from) === phaseOf(to)) return [a, b];
  return [a, b].map((at) => {
    let box = boxes[at];
    while (box.kind !== "phase") box = box.parent;
    return box.place;
  });
}

function shapeOf(from, result, shaped) {
  if (from >= ops.count) return ends[from - ops.count].shape;
  return shaped === from ? (ops.of.outs(from).split(", ")[result] ?? "") : ops.of.outs(shaped);
}

function label(shapes) {
  const kinds = new Set(shapes);
  if (shapes.length === 1) return shapes[0];
  return kinds.size === 1 ? `${shapes.length.toLocaleString("en-US")} × ${shapes[0]}` : `${shapes.length.toLocaleString("en-US")} tensors`;
}

function levels(net, boxes, width) {
  const maker = boxes[net.maker];
  const above = new Map();
  for (let box = maker, child = null; box; child = box, box = box.parent) above.set(box, child);
  const within = new Map();
  const netIn = (level, source) => {
    if (!within.has(level)) {
      within.set(level, { key: net.key, net, source, targets: [], leaves: false, label: source === maker ? width : 0 });
      level.nets.push(within.get(level));
    }
    return within.get(level);
  };
  for (const reader of net.readers) {
    let box = boxes[reader];
    const down = [box];
    while (!above.has(box.parent)) down.push((box = box.parent));
    const common = box.parent;
    const source = above.get(common);
    // What is drawn upwards ends at the borders of the boxes on its level.
    const isAhead = common.children.indexOf(source) < common.children.indexOf(box);
    if (isAhead) for (let level = maker.parent; level !== common; level = level.parent) netIn(level, above.get(level)).leaves = true;
    const here = netIn(common, source);
    if (!here.targets.includes(box)) here.targets.push(box);
    if (!isAhead) continue;
    for (let at = down.length - 1; at > 0; at -= 1) {
      const inside = netIn(down[at], null);
      if (!inside.targets.includes(down[at - 1])) inside.targets.push(down[at - 1]);
    }
  }
  for (const [level, one] of within) {
    const placeOf = new Map(level.children.map((child, at) => [child, at]));
    one.source = one.source ? placeOf.get(one.source) : -1;
    one.targets = one.targets.map((target) => placeOf.get(target));
  }
}
