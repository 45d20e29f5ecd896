// Boxes in boxes as layers from top to bottom: each opened box is laid out by itself and is then one box of its parent, so that
// boxes never overlap. Layers by longest paths, orders by medians, places by chains that are kept straight. No document is needed.

const GAP = { x: 22, y: 28, lines: 12 };
const FRAME = { title: 23, text: 17, side: 12, bottom: 20 };
const SWEEPS = 8;
const MOVES = 10;
const APART = 12;
const MOST_LABELS = 4;
const LABEL_GAP = 10;
// A row of what has no connection is about as wide as it is high, of boxes that are wider than high.
const FLAT = 0.5;

// `box.children` are boxes, in the order of execution, with `width` and `height` where they have no children themselves.
// `box.nets` are tensors that go from one of them to others: `source` and `targets` are places in `children`; -1 as the source
// is a tensor from outside, `leaves` one that goes outside; `label` is the width of its label. It gets its size, its children
// places in it, and `lines`. A generator, so that its caller may do other things between two of its steps.
export function* arrange(box, isRoot = true) {
  for (const child of box.children) if (child.children) yield* arrange(child, false);
  const top = isRoot ? 0 : FRAME.title;
  const found = yield* level(box.children, box.nets, top, isRoot ? 0 : FRAME.bottom);
  const side = isRoot ? 0 : FRAME.side;
  box.width = Math.max(found.width + 2 * side, box.least ?? 0);
  box.height = found.height;
  const shift = (box.width - found.width) / 2;
  box.children.forEach((child, place) => {
    child.x = found.x[place] + shift;
    child.y = found.y[place];
  });
  box.lines = found.lines;
  for (const line of box.lines) {
    for (const piece of line.pieces) for (const at of [0, 3]) piece[at] += shift;
    for (const end of [...line.ends, line.from].filter(Boolean)) end.x += shift;
  }
  const around = (ports) => new Map([...ports].map(([net, x]) => [net.key, x + shift - box.width / 2]));
  box.ports = { in: around(found.ins), out: around(found.outs) };
}

function* level(boxes, nets, top, bottom) {
  const links = linksOf(nets);
  const ranks = ranksOf(boxes, links);
  const { items, rows, segments } = itemsOf(boxes, links, ranks);
  yield;
  yield* order(rows, segments, items);
  const main = mainPath(boxes, links, segments);
  const widths = items.map((item) => item.width);
  ports(boxes, items, segments, main, widths);
  const x = yield* places(rows, segments, items, widths, main);
  // Below the title there is room for lines that do not go straight down.
  const bends = segments.some((one) => items[one.upper].port && Math.abs(x[one.upper] - x[one.lower] - one.into) > 1);
  let [y, least] = [bends ? FRAME.text + GAP.y : top, Infinity];
  const [tops, ends] = [[], []];
  rows.forEach((row, at) => {
    const high = Math.max(...row.map((item) => items[item].height), 0);
    const isPort = row.some((item) => items[item].port);
    tops[at] = isPort ? (at ? y - GAP.y + bottom : 0) : y;
    ends[at] = isPort && !at ? FRAME.text : tops[at] + high;
    if (!isPort) y = ends[at] + GAP.y;
  });
  const height = Math.max(0, y - GAP.y) + bottom;
  items.forEach((item, at) => { least = Math.min(least, x[at] - widths[at] / 2); });
  const edge = (at) => x[at] - least;
  boxes.forEach((box, at) => { box.width = widths[at]; });
  const heightOf = (at) => (tops[items[at].row] + ends[items[at].row] - items[at].height) / 2;
  const lines = new Map();
  for (const segment of segments) {
    const { upper, lower, link } = segment;
    const [a, b] = [items[upper], items[lower]];
    if (!lines.has(link)) lines.set(link, { net: link.net, back: link.back, pieces: [], from: null, ends: [] });
    const line = lines.get(link);
    const begin = a.box ? heightOf(upper) + a.height : tops[a.row];
    const end = b.box ? heightOf(lower) : tops[b.row];
    const piece = [edge(upper) + segment.out, begin, ends[a.row], edge(lower) + segment.into, tops[b.row], end];
    line.pieces.push(piece);
    if (a.box && !link.back) line.from = { x: piece[0], y: begin };
    if (b.box) line.ends.push({ x: piece[3], y: end, inside: Boolean(b.box.ports?.in.has(link.net.key)) });
  }
  const portsOf = (into) => new Map(items.flatMap((item, at) => (item.port && item.into === into ? [[item.port, edge(at)]] : [])));
  return {
    x: boxes.map((_, at) => edge(at)), y: boxes.map((_, at) => heightOf(at)), lines: [...lines.values()], ins: portsOf(true), outs: portsOf(false),
    width: Math.max(0, ...items.map((_, at) => edge(at) + widths[at] / 2)), height,
  };
}

// A tensor that is read by what was executed before, as of a module that is called again, is drawn upwards: turned round here.
function linksOf(nets) {
  const links = [];
  for (const net of nets) {
    const targets = net.targets.filter((target) => target > net.source);
    if (targets.length || net.leaves) links.push({ net, source: net.source, targets, leaves: net.leaves });
    for (const target of net.targets) if (target < net.source) links.push({ net, source: target, targets: [net.source], leaves: false, back: true });
  }
  return links;
}

function ranksOf(boxes, links) {
  const [reads, gives] = [boxes.map(() => []), boxes.map(() => [])];
  const [entered, left] = [boxes.map(() => false), boxes.map(() => false)];
  for (const { source, targets, leaves } of links) {
    for (const target of targets) {
      if (source < 0) entered[target] = true;
      else {
        reads[target].push(source);
        gives[source].push(target);
      }
    }
    if (leaves && source >= 0) left[source] = true;
  }
  const rank = new Int32Array(boxes.length);
  boxes.forEach((_, at) => { for (const from of reads[at]) rank[at] = Math.max(rank[at], rank[from] + 1); });
  // What only prepares something for later is right above what reads it.
  const prepares = boxes.map(() => false);
  boxes.forEach((_, at) => { prepares[at] = !entered[at] && reads[at].every((from) => prepares[from] && gives[from].length === 1); });
  for (let at = boxes.length - 1; at >= 0; at -= 1) {
    if (!gives[at].length || left[at] || !(prepares[at] || gives[at].length > reads[at].length + entered[at])) continue;
    rank[at] = gives[at].reduce((least, to) => Math.min(least, rank[to]), Infinity) - 1;
  }
  const alone = [...boxes.keys()].filter((at) => !reads[at].length && !gives[at].length && !entered[at] && !left[at]);
  const joined = boxes.length > alone.length ? Math.max(...boxes.map((_, at) => (alone.includes(at) ? 0 : rank[at]))) + 1 : 0;
  const across = Math.max(1, Math.ceil(Math.sqrt(alone.length * FLAT)));
  alone.forEach((at, place) => { rank[at] = joined + Math.floor(place / across); });
  return rank;
}

// Boxes, ports, and where a tensor goes past a layer, a bend in it; what several read goes down together as far as it can.
function itemsOf(boxes, links, ranks) {
  const hasPorts = links.some(({ source }) => source < 0);
  const items = boxes.map((box, at) => ({ box, width: box.width, height: box.height, row: ranks[at] + (hasPorts ? 1 : 0) }));
  const last = items.reduce((most, { row }) => Math.max(most, row), 0) + 1;
  const segments = [];
  const add = (item) => items.push(item) - 1;
  for (const link of links) {
    const { net, source, targets, leaves } = link;
    let upper = source < 0 ? add({ port: net, into: true, width: 0, height: 0, row: 0 }) : source;
    const ends = targets.map((target) => target);
    if (leaves) ends.push(add({ port: net, into: false, width: 0, height: 0, row: last }));
    const lowest = Math.max(...ends.map((end) => items[end].row));
    const trunk = new Map([[items[upper].row, upper]]);
    for (let row = items[upper].row + 1; row < lowest; row += 1) {
      const bend = add({ width: 0, height: 0, row });
      segments.push({ upper, lower: bend, link });
      trunk.set(row, (upper = bend));
    }
    for (const end of ends) segments.push({ upper: trunk.get(items[end].row - 1), lower: end, link, end });
  }
  const rows = Array.from({ length: Math.max(0, ...items.map(({ row }) => row + 1)) }, () => []);
  items.forEach(({ row }, at) => rows[row].push(at));
  return { items, rows, segments };
}

// -- orders: those of the sweep with the fewest crossings --------------------------------------------------------------

function* order(rows, segments, items) {
  const [above, below] = [items.map(() => []), items.map(() => [])];
  for (const { upper, lower } of segments) {
    above[lower].push(upper);
    below[upper].push(lower);
  }
  const place = new Int32Array(items.length);
  const number = (row) => row.forEach((item, at) => { place[item] = at; });
  rows.forEach(number);
  let best = { crossings: crossingsOf(rows, below, place), rows: rows.map((row) => [...row]) };
  for (let sweep = 0; sweep < SWEEPS && best.crossings; sweep += 1) {
    const near = sweep % 2 ? below : above;
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      // What has no neighbour there keeps its place.
      const moved = row.filter((item) => near[item].length);
      const middle = new Map(moved.map((item) => [item, median(near[item].map((other) => place[other]))]));
      moved.sort((a, b) => middle.get(a) - middle.get(b) || place[a] - place[b]);
      row.forEach((item, at) => { if (middle.has(item)) row[at] = -1; });
      row.forEach((item, at) => { if (item < 0) row[at] = moved.shift(); });
      number(row);
      exchange(row, above, below, place);
      yield;
    }
    const crossings = crossingsOf(rows, below, place);
    if (crossings < best.crossings) best = { crossings, rows: rows.map((row) => [...row]) };
  }
  best.rows.forEach((row, at) => rows[at].splice(0, Infinity, ...row));
  rows.forEach((row) => row.forEach((item, at) => { items[item].place = at; }));
}

// Neighbours are exchanged as long as that removes crossings.
function exchange(row, above, below, place) {
  for (let again = row.length > 200 ? 0 : 3; again > 0; again -= 1) {
    let better = false;
    for (let at = 1; at < row.length; at += 1) {
      const [a, b] = [row[at - 1], row[at]];
      const gain = (near) => {
        let sum = 0;
        for (const one of near[a]) for (const other of near[b]) sum += Math.sign(place[one] - place[other]);
        return sum;
      };
      if (gain(above) + gain(below) <= 0) continue;
      [row[at - 1], row[at]] = [b, a];
      [place[a], place[b]] = [at, at - 1];
      better = true;
    }
    if (!better) return;
  }
}

function crossingsOf(rows, below, place) {
  let crossings = 0;
  for (const row of rows) {
    const seen = [];
    for (const item of row) {
      const ends = below[item].map((other) => place[other]);
      for (const end of ends) for (let at = end + 1; at < seen.length; at += 1) crossings += seen[at] ?? 0;
      for (const end of ends) seen[end] = (seen[end] ?? 0) + 1;
    }
  }
  return crossings;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// -- places -------------------------------------------------------------------------------------------------------------

// A path that begins or ends outside comes before a longer one that does not.
const OUTSIDE = 1000;

// The segments of the path through the most boxes.
function mainPath(boxes, links, segments) {
  const score = boxes.map(() => 1);
  const before = boxes.map(() => null);
  const into = boxes.map(() => []);
  for (const link of links) if (!link.back) for (const target of link.targets) into[target].push(link);
  boxes.forEach((_, at) => {
    for (const link of into[at]) {
      const sum = 1 + (link.source < 0 ? OUTSIDE : score[link.source]);
      if (sum > score[at]) [score[at], before[at]] = [sum, link];
    }
  });
  const leaving = new Map(links.filter((link) => link.leaves && link.source >= 0).map((link) => [link.source, link]));
  let last = -1;
  const length = (at) => score[at] + (leaving.has(at) ? OUTSIDE : 0);
  boxes.forEach((_, at) => { if (last < 0 || length(at) > length(last)) last = at; });
  const number = new Map(links.map((link, at) => [link, at]));
  const keyOf = (lower, link) => lower * links.length + number.get(link);
  const above = new Map(segments.map((segment) => [keyOf(segment.lower, segment.link), segment]));
  const main = new Set();
  const climb = (end, link) => {
    for (let at = end; at !== undefined && at !== link.source; ) {
      const segment = above.get(keyOf(at, link));
      if (!segment) return;
      main.add(segment);
      at = segment.upper;
    }
  };
  if (leaving.has(last)) {
    const link = leaving.get(last);
    climb(segments.find((segment) => segment.link === link && segment.end >= boxes.length).lower, link);
  }
  for (let at = last; at >= 0 && before[at]; at = before[at].source) climb(at, before[at]);
  return main;
}

// Where lines begin and end at their boxes, from the middle: the main path there, others beside it, as far apart as labels need.
function ports(boxes, items, segments, main, widths) {
  for (const segment of segments) Object.assign(segment, { out: 0, into: 0 });
  const [into, out] = [boxes.map(() => []), boxes.map(() => [])];
  for (const segment of segments) {
    if (segment.lower < boxes.length) into[segment.lower].push(segment);
    if (segment.upper < boxes.length) out[segment.upper].push(segment);
  }
  boxes.forEach((box, at) => {
    const ends = into[at].sort((a, b) => items[a.upper].place - items[b.upper].place);
    if (box.ports) ends.forEach((segment) => { segment.into = box.ports.in.get(segment.link.net.key) ?? 0; });
    else {
      const step = Math.min(APART, (widths[at] - APART) / Math.max(1, ends.length));
      const middle = Math.max(0, ends.findIndex((segment) => main.has(segment)));
      const centre = ends.some((segment) => main.has(segment)) ? middle : (ends.length - 1) / 2;
      ends.forEach((segment, place) => { segment.into = (place - centre) * step; });
    }
    const links = [...new Set(out[at].map((segment) => segment.link))];
    const offsets = box.ports ? new Map(links.map((link) => [link, box.ports.out.get(link.net.key) ?? 0])) : spread(links, out[at], items, main, widths, at);
    for (const segment of out[at]) segment.out = offsets.get(segment.link);
  });
}

function spread(links, segments, items, main, widths, at) {
  const first = new Map();
  for (const segment of segments) first.set(segment.link, Math.min(first.get(segment.link) ?? Infinity, items[segment.lower].place));
  const isMain = (link) => segments.some((segment) => segment.link === link && main.has(segment));
  links.sort((a, b) => first.get(a) - first.get(b));
  const room = (link) => (links.length > MOST_LABELS ? APART : (link.back ? 0 : link.net.label) + LABEL_GAP);
  const offsets = new Map();
  let x = 0;
  for (const link of links) {
    offsets.set(link, x + room(link) / 2);
    x += room(link);
  }
  const centre = offsets.get(links.find(isMain)) ?? x / 2;
  for (const link of links) offsets.set(link, offsets.get(link) - centre);
  widths[at] = Math.max(widths[at], 2 * Math.max(centre, x - centre) - LABEL_GAP);
  return offsets;
}

// Chains of items that are right below each other, the main path and bends first, move as one until each is as near to what it is
// joined with as those beside it allow.
function* places(rows, segments, items, widths, main) {
  const [up, down] = [new Map(), new Map()];
  const byRow = rows.map(() => []);
  for (const segment of segments) byRow[items[segment.upper].row].push(segment);
  const [incoming, outgoing] = [items.map(() => 0), items.map(() => 0)];
  for (const { upper, lower } of segments) {
    outgoing[upper] += 1;
    incoming[lower] += 1;
  }
  const isBend = (at) => !items[at].box;
  const rankOf = (one) => (main.has(one) ? 0 : isBend(one.upper) && isBend(one.lower) ? 1 : incoming[one.lower] + outgoing[one.upper]);
  for (const row of byRow) {
    const taken = [];
    for (const one of row.sort((a, b) => rankOf(a) - rankOf(b) || items[a.upper].place - items[b.upper].place)) {
      if (up.has(one.lower) || down.has(one.upper)) continue;
      const [a, b] = [items[one.upper].place, items[one.lower].place];
      if (taken.some((other) => (items[other.upper].place - a) * (items[other.lower].place - b) < 0)) continue;
      taken.push(one);
      up.set(one.lower, one);
      down.set(one.upper, one);
    }
    yield;
  }
  const chain = new Int32Array(items.length).fill(-1);
  const shift = new Float64Array(items.length);
  let count = 0;
  for (const row of rows) {
    for (const item of row) {
      const segment = up.get(item);
      chain[item] = segment ? chain[segment.upper] : count++;
      if (segment) shift[item] = shift[segment.upper] + segment.out - segment.into;
    }
  }
  const right = Array.from({ length: count }, () => []);
  const left = Array.from({ length: count }, () => []);
  for (const row of rows) {
    for (let at = 1; at < row.length; at += 1) {
      const [a, b] = [row[at - 1], row[at]];
      const gap = isBend(a) || isBend(b) ? GAP.lines : GAP.x;
      const apart = shift[a] + (widths[a] + widths[b]) / 2 + gap - shift[b];
      right[chain[a]].push([chain[b], apart]);
      left[chain[b]].push([chain[a], apart]);
    }
  }
  const ordered = sorted(right, left);
  const x = new Float64Array(count);
  for (const at of ordered) for (const [other, apart] of left[at]) x[at] = Math.max(x[at], x[other] + apart);
  const pulls = Array.from({ length: count }, () => []);
  for (const segment of segments) {
    const [a, b] = [chain[segment.upper], chain[segment.lower]];
    if (a === b) continue;
    const between = shift[segment.upper] + segment.out - shift[segment.lower] - segment.into;
    pulls[a].push([b, -between]);
    pulls[b].push([a, between]);
  }
  for (let move = 0; move < MOVES; move += 1) {
    for (const at of move % 2 ? ordered : [...ordered].reverse()) {
      if (!pulls[at].length) continue;
      const wish = median(pulls[at].map(([other, by]) => x[other] + by));
      const least = left[at].reduce((most, [other, apart]) => Math.max(most, x[other] + apart), -Infinity);
      const most = right[at].reduce((all, [other, apart]) => Math.min(all, x[other] - apart), Infinity);
      x[at] = Math.max(least, Math.min(most, wish));
    }
    yield;
  }
  return items.map((_, item) => x[chain[item]] + shift[item]);
}

// Chains from left to right; as they do not cross, there is such an order.
function sorted(right, left) {
  const waiting = left.map((all) => all.length);
  const ready = [...waiting.keys()].filter((at) => !waiting[at]);
  for (let at = 0; at < ready.length; at += 1) for (const [other] of right[ready[at]]) if (!(waiting[other] -= 1)) ready.push(other);
  return ready;
}
