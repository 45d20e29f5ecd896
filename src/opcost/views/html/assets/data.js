// The block of data in the page, unpacked: texts are in it once, columns as arrays.

export const data = JSON.parse(document.getElementById("data").textContent);

// A column as a function of the row: plain values, or words and their places.
export function reader(column) {
  if (!column) return () => null;
  const { values, words, at } = column;
  return values ? (row) => values[row] : (row) => words[at[row]];
}

function unpackTree(packed) {
  const count = packed.parent.length;
  const children = Array.from({ length: count }, () => []);
  const depth = new Int32Array(count);
  const path = new Array(count).fill("");
  const name = reader(packed.name);
  for (let node = 1; node < count; node += 1) {
    const parent = packed.parent[node];
    children[parent].push(node);
    depth[node] = depth[parent] + 1;
    path[node] = parent ? `${path[parent]}${packed.joint}${name(node)}` : name(node);
  }
  const own = {};
  const total = {};
  for (const quantity of packed.quantities) {
    own[quantity.name] = Float64Array.from(quantity.own);
    const sums = Float64Array.from(quantity.own);
    // Children are after their parents, so one pass from the end adds everything up.
    for (let node = count - 1; node > 0; node -= 1) sums[packed.parent[node]] += sums[node];
    total[quantity.name] = sums;
  }
  const byPath = new Map(path.map((text, node) => [text, node]).reverse());
  return {
    count, children, depth, path, own, total, byPath, parent: packed.parent, quantities: packed.quantities, noun: packed.noun,
    name: (node) => (node === 0 ? packed.root : name(node)), type: reader(packed.type), kinds: packed.kinds,
    details: (packed.details ?? []).map((column) => ({ ...column, of: reader(column) })).filter((column) => path.some((_, node) => ![null, ""].includes(column.of(node)))), partial: packed.partial ?? null, operators: Boolean(packed.operators),
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
