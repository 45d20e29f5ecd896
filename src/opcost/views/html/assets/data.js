// The block of data in the page, unpacked: texts stand in it once, columns as arrays.

export const data = JSON.parse(document.getElementById("data").textContent);

// A column as a function of the row: plain values, or words and their places.
export function reader(column) {
  if (!column) return () => null;
  const { values, words, at } = column;
  return values ? (row) => values[row] : (row) => words[at[row]];
}

function unpackTree(told) {
  const count = told.parent.length;
  const children = Array.from({ length: count }, () => []);
  const depth = new Int32Array(count);
  const path = new Array(count).fill("");
  const name = reader(told.name);
  for (let node = 1; node < count; node += 1) {
    const parent = told.parent[node];
    children[parent].push(node);
    depth[node] = depth[parent] + 1;
    path[node] = parent ? `${path[parent]}${told.joint}${name(node)}` : name(node);
  }
  const own = {};
  const total = {};
  for (const quantity of told.quantities) {
    own[quantity.name] = Float64Array.from(quantity.own);
    const sums = Float64Array.from(quantity.own);
    // Children stand after their parents, so one pass from the end adds everything up.
    for (let node = count - 1; node > 0; node -= 1) sums[told.parent[node]] += sums[node];
    total[quantity.name] = sums;
  }
  const byPath = new Map(path.map((text, node) => [text, node]).reverse());
  return {
    count, children, depth, path, own, total, byPath, parent: told.parent, quantities: told.quantities, noun: told.noun,
    name: (node) => (node === 0 ? told.root : name(node)), type: reader(told.type), kinds: told.kinds,
    details: (told.details ?? []).map((column) => ({ ...column, of: reader(column) })), partial: told.partial ?? null,
  };
}

export const tree = data.tree ? unpackTree(data.tree) : null;

// Whether something below a node has no cost, so that what is counted is a lower bound.
export const isPartial = (node) => Boolean(tree.partial && tree.total[tree.partial][node] > 0);

export function isWithin(node, ancestor) {
  for (let at = node; at !== undefined && at >= 0; at = at === 0 ? -1 : tree.parent[at]) if (at === ancestor) return true;
  return false;
}

export const ops = data.ops
  ? {
      count: data.ops.count,
      columns: data.ops.columns.map((column) => ({ ...column, of: reader(column) })),
      module: data.ops.module,
      of: Object.fromEntries(data.ops.columns.map((column) => [column.name, reader(column)])),
    }
  : null;

export const quantityOf = (name) => tree.quantities.find((quantity) => quantity.name === name);

// The seven commonest types of the tree have a colour each; the others share grey.
export const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800"];
export const GREY = "#8a929c";

// Those that are `fixed` keep the colour that they have everywhere.
export function coloursOf(keys, weight, fixed = new Map()) {
  const sums = new Map();
  keys.forEach((key, row) => sums.set(key, (sums.get(key) ?? 0) + weight(row)));
  const taken = new Map([...fixed].filter(([key]) => sums.has(key)));
  const free = COLOURS.filter((colour) => ![...taken.values()].includes(colour));
  const ranked = [...sums].filter(([key, sum]) => key && sum > 0 && !taken.has(key)).sort((a, b) => b[1] - a[1]).slice(0, free.length);
  return new Map([...ranked.map(([key], place) => [key, free[place]]), ...taken]);
}
