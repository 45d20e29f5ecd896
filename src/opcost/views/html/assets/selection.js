// One selection for all views: a node of the tree, or an operator of the list, which also chooses its node.

import { ops, tree } from "./data.js";
import { announce } from "./dom.js";
import { shown } from "./shown.js";
import { setState, state } from "./state.js";

export function choose(node) {
  setState({ sel: node > 0 ? tree.path[node] : node === 0 ? "/" : "" });
  if (node >= 0) announce(`${shown().label(node)} ${shown().typeOf(node) ?? ""} chosen`);
}

export function chooseOperator(row) {
  setState({ sel: `#${row}` });
  announce(`operator ${row + 1} chosen`);
}

export function chosenOperator() {
  const row = /^#\d+$/.test(state.sel) ? Number(state.sel.slice(1)) : -1;
  return ops && row < ops.count ? row : -1;
}

// -1 where nothing is chosen. A path may begin with the sign of an operator, so operators are tried first.
export function chosenNode() {
  if (!state.sel || !tree) return -1;
  const row = chosenOperator();
  if (row >= 0) return ops.module[row];
  return state.sel === "/" ? 0 : (tree.byPath.get(state.sel) ?? -1);
}
