// The places of the areas of a treemap or an icicle: plain numbers, no drawing.

const LEAST = 3;
const TITLE = 15;
// Of more parts than this the smallest are one area, since thousands can neither be read nor drawn in time.
const MOST_PARTS = 1500;

// Squarified: rows of areas whose sides are as alike as can be (Bruls, Huizing and van Wijk, 2000).
function squarify(sizes, x, y, width, height) {
  const sum = sizes.reduce((total, size) => total + size, 0);
  const boxes = new Array(sizes.length);
  const order = sizes.map((_, place) => place).sort((a, b) => sizes[b] - sizes[a]);
  const scale = sum > 0 ? (width * height) / sum : 0;
  let start = 0;
  while (start < order.length) {
    const side = Math.min(width, height);
    let end = start;
    let area = 0;
    let worst = Infinity;
    while (end < order.length) {
      const next = area + sizes[order[end]] * scale;
      const largest = sizes[order[start]] * scale;
      const smallest = sizes[order[end]] * scale;
      const ratio = Math.max((side * side * largest) / (next * next), (next * next) / (side * side * smallest));
      if (!(ratio <= worst) && end > start) break;
      worst = ratio;
      area = next;
      end += 1;
    }
    const thick = side > 0 ? area / side : 0;
    let along = 0;
    for (let place = start; place < end; place += 1) {
      const length = thick > 0 ? (sizes[order[place]] * scale) / thick : 0;
      boxes[order[place]] = width >= height ? [x, y + along, thick, length] : [x + along, y, length, thick];
      along += length;
    }
    if (width >= height) [x, width] = [x + thick, width - thick];
    else [y, height] = [y + thick, height - thick];
    start = end;
  }
  return boxes;
}

// `tree` has children(node), size(node) and own(node); an own amount beside children is an area without children.
// An area has the size that it is drawn for, and `rest` children if it is for the smallest of very many.
// `title` is the height that a node with children keeps free for its name, 0 where there is no room.
export function treemapAreas(tree, root, width, height) {
  const areas = [];
  const place = (node, depth, x, y, w, h) => {
    const parts = partsOf(tree, node);
    const title = parts.length && h > 3 * TITLE && w > 40 ? TITLE : 0;
    areas.push({ node, depth, x, y, w, h, title, size: tree.size(node), leaf: !parts.length });
    const pad = Math.min(w, h) > 24 ? 2 : 0;
    const room = [x + pad, y + title + (title ? 0 : pad), w - 2 * pad, h - title - (title ? pad : 2 * pad)];
    if (room[2] < LEAST || room[3] < LEAST) return;
    squarify(parts.map((part) => part.size), ...room).forEach((box, at) => {
      if (!box || box[2] < 0.8 || box[3] < 0.8) return;
      const part = parts[at];
      if (part.own || part.rest || box[2] < LEAST || box[3] < LEAST) areas.push({ ...part, depth: depth + 1, x: box[0], y: box[1], w: box[2], h: box[3], title: 0, leaf: true });
      else place(part.node, depth + 1, ...box);
    });
  };
  if (tree.size(root) > 0) place(root, 0, 0, 0, width, height);
  return areas;
}

// The children of a node, the smallest of very many together, and what the node has itself beside them.
function partsOf(tree, node) {
  let parts = tree.children(node).map((child) => ({ node: child, size: tree.size(child) }));
  if (!parts.length) return parts;
  if (parts.length > MOST_PARTS) {
    parts.sort((a, b) => b.size - a.size);
    const others = parts.splice(MOST_PARTS);
    parts.push({ node, rest: others.length, size: others.reduce((sum, part) => sum + part.size, 0) });
  }
  return tree.own(node) > 0 ? [...parts, { node, own: true, size: tree.own(node) }] : parts;
}

// Levels from top to bottom, each as wide as its share.
export function icicleAreas(tree, root, width, line) {
  const areas = [];
  const whole = tree.size(root);
  const place = (node, depth, x, w) => {
    areas.push({ node, depth, x, y: depth * line, w, h: line, title: line, size: tree.size(node), leaf: !tree.children(node).length });
    let at = x;
    for (const child of tree.children(node)) {
      const part = (tree.size(child) / whole) * width;
      if (part >= 0.6) place(child, depth + 1, at, part);
      at += part;
    }
  };
  if (whole > 0) place(root, 0, 0, width);
  return areas;
}
