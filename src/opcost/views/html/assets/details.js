// What is known of the chosen module or operator, in one strip below the views.

import { isPartial, ops, tree } from "./data.js";
import { make } from "./dom.js";
import { formatAs, formatShare } from "./format.js";
import { cellText } from "./grid.js";
import { chosenNode, chosenOperator } from "./selection.js";
import { shown, SHOWN_STATE } from "./shown.js";
import { whenChanged } from "./state.js";

export function detailsPanel() {
  const strip = make("section", { class: "panel details", "aria-label": "What is chosen" });
  const show = () => {
    const operator = chosenOperator();
    const node = chosenNode();
    strip.hidden = node < 0;
    if (node >= 0) strip.replaceChildren(...(operator >= 0 ? ofOperator(operator) : ofNode(node)));
  };
  whenChanged((names) => ["sel", "bytes", ...SHOWN_STATE].some((name) => names.has(name)) && show());
  show();
  return strip;
}

const entry = (name, value) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }));

// Of merged blocks the sum of all, and how much each of them has.
function ofNode(node) {
  const { own, path, rep, times, total, typeOf } = shown();
  const isMerged = rep[node] === node && times(node) > 1;
  const amounts = tree.quantities.map((quantity) => {
    const { name, title, unit } = quantity;
    // A block that others represent has its own amounts in no line.
    const all = (rep[node] === node ? total : tree.total)[name][node];
    if (!all) return null;
    const least = quantity.needs_costs && isPartial(node) ? "≥" : "";
    const further = [
      formatShare(all / total[name][0]),
      isMerged ? `each ${formatAs(unit, all / times(node))}` : "",
      !isMerged && tree.children[node].length && own[name][node] ? `own ${formatAs(unit, own[name][node])}` : "",
    ];
    return entry(title, `${least}${formatAs(unit, all)} (${further.filter(Boolean).join(", ")})`);
  });
  const further = tree.details.map((column) => [column.title, column.of(node)]).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const type = isMerged ? typeOf(node) : tree.type(node);
  return [
    make("h2", { text: (isMerged ? path(node) : tree.path[node]) || tree.name(0) }),
    make("dl", {}, ...(type ? [entry("type", type)] : []), ...further.map(([title, value]) => entry(title, String(value))), ...amounts),
  ];
}

function ofOperator(row) {
  const shown = ops.columns.filter((column) => !["", null].includes(column.of(row)) || column.name === "flops");
  return [
    make("h2", { text: `operator ${row + 1}` }),
    make("dl", {}, entry("module", tree.path[ops.module[row]] || tree.name(0)), ...shown.map((column) => entry(column.title || column.name, cellText(column, row)))),
  ];
}
