// The places of the areas of a treemap or an icicle: plain numbers, no drawing.

const LEAST = 3;
const TITLE = 15;
// More areas can neither be read nor drawn in time.
const MOST_AREAS = 1500;

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
  let level = tree.size(root) > 0 ? [{ node: root, size: tree.size(root), x: 0, y: 0, w: width, h: height }] : [];
  for (let depth = 0; level.length; depth += 1) {
    const childrenOf = level.map((area) => (area.own || area.rest || area.w < LEAST || area.h < LEAST ? [] : tree.children(area.node)));
    const most = fairShare(childrenOf.map((children) => children.length), MOST_AREAS - areas.length - level.length);
    level = level.flatMap((area, at) => {
      const parts = partsOf(tree, area.node, childrenOf[at], most);
      const title = parts.length && area.h > 3 * TITLE && area.w > 40 ? TITLE : 0;
      areas.push({ ...area, depth, title, leaf: !parts.length });
      return placed(parts, area, title);
    });
  }
  return areas;
}

// The most parts that each may have so that all together have no more than there are left.
function fairShare(counts, left) {
  let others = counts.length;
  for (const count of [...counts].sort((a, b) => a - b)) {
    if (count * others > left) return Math.max(0, Math.floor(left / others));
    left -= count;
    others -= 1;
  }
  return Infinity;
}

// Parts with their places in an area, without those that are too small to be seen.
function placed(parts, area, title) {
  const pad = Math.min(area.w, area.h) > 24 ? 2 : 0;
  const [width, height] = [area.w - 2 * pad, area.h - title - (title ? pad : 2 * pad)];
  if (width < LEAST || height < LEAST) return [];
  const boxes = squarify(parts.map((part) => part.size), area.x + pad, area.y + (title || pad), width, height);
  return parts.map((part, at) => {
    const [x, y, w, h] = boxes[at];
    return { ...part, x, y, w, h };
  }).filter((part) => part.w >= 0.8 && part.h >= 0.8);
}

// The children of a node, the smallest of very many together, and what the node has itself beside them.
function partsOf(tree, node, children, most) {
  if (!children.length || most < 2) return [];
  const parts = children.map((child) => ({ node: child, size: tree.size(child) }));
  if (parts.length > most) {
    parts.sort((a, b) => b.size - a.size);
    const others = parts.splice(most - 1);
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
