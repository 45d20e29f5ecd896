// A layered layout, top to bottom: layers by the longest way, orders by the middle of neighbours, places without overlap.

const SWEEPS = 6;
const MOST_BENDS = 60000;

// `nodes` tell their width, and how much room the titles above them need; `edges` are [from, to] with from before to. Returns places, and the bends of every edge.
export function layered(nodes, edges, { gapX = 26, gapY = 36, height = 40 } = {}) {
  const count = nodes.length;
  const layer = new Int32Array(count);
  const incoming = Array.from({ length: count }, () => []);
  edges.forEach(([from, to]) => incoming[to].push(from));
  for (let node = 0; node < count; node += 1) for (const from of incoming[node]) layer[node] = Math.max(layer[node], layer[from] + 1);
  drawDown(layer, incoming, edges);

  // An edge over several layers bends in each of them, so that it goes around what stands there.
  const widths = nodes.map((node) => node.width);
  const layers = [...layer];
  const chains = [];
  const spans = edges.reduce((sum, [from, to]) => sum + layer[to] - layer[from] - 1, 0);
  for (const [from, to] of edges) {
    const chain = [from];
    if (spans <= MOST_BENDS) {
      for (let at = layer[from] + 1; at < layer[to]; at += 1) {
        chain.push(widths.length);
        widths.push(6);
        layers.push(at);
      }
    }
    chain.push(to);
    chains.push(chain);
  }
  const above = Array.from({ length: widths.length }, () => []);
  const below = Array.from({ length: widths.length }, () => []);
  for (const chain of chains) {
    for (let at = 1; at < chain.length; at += 1) {
      above[chain[at]].push(chain[at - 1]);
      below[chain[at - 1]].push(chain[at]);
    }
  }
  const rows = [];
  layers.forEach((at, node) => (rows[at] ??= []).push(node));
  const order = new Float64Array(widths.length);
  rows.forEach((row) => row.forEach((node, place) => { order[node] = place; }));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const near = down ? above : below;
    for (const row of down ? rows : [...rows].reverse()) {
      const middle = new Map(row.map((node) => [node, near[node].length ? mean(near[node], order) : order[node]]));
      row.sort((a, b) => middle.get(a) - middle.get(b) || order[a] - order[b]);
      row.forEach((node, place) => { order[node] = place; });
    }
  }
  const x = placed(rows, widths, above, below, gapX);
  // Frames that begin at a node have their titles above it.
  const titles = new Float64Array(rows.length);
  nodes.forEach((node, place) => { titles[layer[place]] = Math.max(titles[layer[place]], node.titles ?? 0); });
  const tops = [0];
  for (let at = 1; at < rows.length; at += 1) tops.push(tops[at - 1] + height + gapY + titles[at]);
  const y = layers.map((at) => tops[at]);
  return {
    x: Array.from({ length: count }, (_, node) => x[node]), y: y.slice(0, count), height,
    bends: chains.map((chain) => chain.map((node) => [x[node], y[node]])), width: Math.max(...x.map((at, node) => at + widths[node] / 2), 0),
    depth: tops.at(-1) + height + gapY,
  };
}

// What only prepares something for later, such as a weight that is turned, stands right above who reads it.
function drawDown(layer, incoming, edges) {
  const outgoing = incoming.map(() => []);
  edges.forEach(([from, to]) => outgoing[from].push(to));
  const prepares = incoming.map(() => false);
  incoming.forEach((before, node) => { prepares[node] = before.every((from) => prepares[from] && outgoing[from].length === 1); });
  for (let node = layer.length - 1; node >= 0; node -= 1) {
    if (!outgoing[node].length || !(prepares[node] || outgoing[node].length > incoming[node].length)) continue;
    layer[node] = outgoing[node].reduce((least, to) => Math.min(least, layer[to]), Infinity) - 1;
  }
}

function mean(nodes, values) {
  let sum = 0;
  for (const node of nodes) sum += values[node];
  return sum / nodes.length;
}

// Each node as near to the middle of its neighbours as those beside it allow.
function placed(rows, widths, above, below, gap) {
  const x = new Float64Array(widths.length);
  for (const row of rows) {
    let at = 0;
    for (const node of row) {
      x[node] = at + widths[node] / 2;
      at += widths[node] + gap;
    }
  }
  for (let sweep = 0; sweep < 2 * SWEEPS; sweep += 1) {
    const near = sweep % 2 === 0 ? above : below;
    for (const row of sweep % 2 === 0 ? rows : [...rows].reverse()) {
      const wish = row.map((node) => (near[node].length ? mean(near[node], x) : x[node]));
      const right = [...wish];
      for (let at = 1; at < row.length; at += 1) right[at] = Math.max(right[at], right[at - 1] + (widths[row[at - 1]] + widths[row[at]]) / 2 + gap);
      const left = [...wish];
      for (let at = row.length - 2; at >= 0; at -= 1) left[at] = Math.min(left[at], left[at + 1] - (widths[row[at]] + widths[row[at + 1]]) / 2 - gap);
      // Pushed to the right and pushed to the left, and the middle of both, which keeps every distance too.
      row.forEach((node, at) => { x[node] = (right[at] + left[at]) / 2; });
    }
  }
  const least = Math.min(...rows.flat().map((node) => x[node] - widths[node] / 2), Infinity);
  return Array.from(x, (at) => at - least);
}
