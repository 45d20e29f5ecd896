// What is known of the chosen module or operator, in one strip below the views.

import { isPartial, ops, tree } from "./data.js";
import { make } from "./dom.js";
import { formatAs, formatShare } from "./format.js";
import { cellText } from "./grid.js";
import { chosenNode, chosenOperator } from "./selection.js";
import { whenChanged } from "./state.js";

export function detailsPanel() {
  const strip = make("section", { class: "panel details", "aria-label": "What is chosen" });
  const show = () => {
    const operator = chosenOperator();
    const node = chosenNode();
    if (node < 0) strip.replaceChildren(make("p", { class: "faint", text: "Choose a line, an area or a point to see all that is known of it here." }));
    else strip.replaceChildren(...(operator >= 0 ? ofOperator(operator) : ofNode(node)));
  };
  whenChanged((names) => (names.has("sel") || names.has("bytes")) && show());
  show();
  return strip;
}

const entry = (name, value) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }));

function ofNode(node) {
  const amounts = tree.quantities.filter((quantity) => tree.total[quantity.name][node]).map((quantity) => {
    const total = tree.total[quantity.name][node];
    const own = tree.own[quantity.name][node];
    const least = quantity.needs_costs && isPartial(node) ? "≥" : "";
    const share = tree.total[quantity.name][0];
    const ownText = tree.children[node].length && own ? `, own ${formatAs(quantity.unit, own)}` : "";
    return entry(quantity.title, `${least}${formatAs(quantity.unit, total)} (${formatShare(total / share)}${ownText})`);
  });
  const further = tree.details.map((column) => [column.title, column.of(node)]).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return [
    make("h2", { text: node ? tree.path[node] : tree.name(0) }),
    make("dl", {}, ...(tree.type(node) ? [entry("type", tree.type(node))] : []), ...further.map(([title, value]) => entry(title, String(value))), ...amounts),
  ];
}

function ofOperator(row) {
  const shown = ops.columns.filter((column) => !["", null].includes(column.of(row)) || column.name === "flops");
  return [
    make("h2", { text: `operator ${row + 1}` }),
    make("dl", {}, entry("module", tree.path[ops.module[row]] || tree.name(0)), ...shown.map((column) => entry(column.title || column.name, cellText(column, row)))),
  ];
}
