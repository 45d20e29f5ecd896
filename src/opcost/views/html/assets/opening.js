// Which modules of the tree are opened: as many as are read at once, or those in the address.

import { tree } from "./data.js";
import { setState, state } from "./state.js";

const READABLE = 40;
const FEW = 12;
const MOST_KEPT = 400;

// Whole levels as long as they are readable; where that leaves few lines, the largest modules of the next level too.
function readable(childrenOf, sizeOf) {
  const opened = new Set();
  let level = [0];
  let lines = 1;
  while (level.length) {
    const next = level.flatMap(childrenOf);
    if (lines + next.length > READABLE) break;
    level.forEach((node) => opened.add(node));
    lines += next.length;
    level = next;
  }
  if (lines > FEW) return opened;
  for (const node of [...level].sort((a, b) => sizeOf(b) - sizeOf(a))) {
    const more = childrenOf(node).length;
    if (lines + more > READABLE && lines > 1) continue;
    opened.add(node);
    lines += more;
  }
  return opened;
}

export function openedModules(childrenOf, sizeOf) {
  if (!state.open) return readable(childrenOf, sizeOf);
  return new Set(state.open.split(".").map((text) => parseInt(text, 36)).filter((node) => node >= 0 && node < tree.count));
}

export function keepOpened(opened) {
  if (opened.size <= MOST_KEPT) setState({ open: [...opened].map((node) => node.toString(36)).join(".") || "-" });
}

export function openTo(node, opened) {
  for (let at = tree.parent[node]; at !== undefined && at >= 0; at = at === 0 ? -1 : tree.parent[at]) opened.add(at);
}

// The levels that a list offers, and what one of them opens.
export const levels = () => [...Array.from({ length: Math.min(Math.max(...tree.depth), 9) + 1 }, (_, level) => [String(level), `level ${level}`]), ["all", "all levels"]];

export function openToLevel(level, opened) {
  opened.clear();
  for (let node = 0; node < tree.count; node += 1) if (level === "all" || tree.depth[node] < Number(level)) opened.add(node);
}
