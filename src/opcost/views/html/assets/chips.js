// Below the heading: by which phase, element type and kind of operator the tree and the views are filtered.

import { data, ops, tree } from "./data.js";
import { make, switcher } from "./dom.js";
import { choicesOf } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";

const TITLES = { phase: "phase", element: "dtype" };

// A filter with one choice is plain text, as are facts of the run.
export function chipsOf() {
  if (!ops || !tree) return null;
  const groups = {};
  const chips = Object.entries(TITLES).map(([name, title]) => {
    const choices = choicesOf(name);
    if (choices.length < 2) return choices.length ? plain(title, choices[0]) : null;
    groups[name] = switcher(`Only operators of one ${title}`, [["", "all"], ...choices.map((choice) => [choice, choice])], state[name], (value) => setState({ [name]: value }));
    return make("div", {}, make("span", { text: title }), groups[name]);
  });
  const run = (data.run ?? []).map(([title, value]) => plain(title, value));
  const kind = make("button", { type: "button", class: "plain", on: { click: () => setState({ kind: "" }) } });
  const element = make("div", { class: "chips", role: "group", "aria-label": "Filters" }, ...chips, ...run, kind);
  const show = () => {
    element.hidden = element.childElementCount === 1 && !state.kind;
    for (const [name, group] of Object.entries(groups)) group.show(state[name]);
    kind.hidden = !state.kind;
    kind.textContent = `only ${state.kind} ×`;
    kind.setAttribute("aria-label", `Show all kinds of operators again, not only ${state.kind}`);
  };
  whenChanged((names) => [...Object.keys(TITLES), "kind"].some((name) => names.has(name)) && show());
  show();
  return element;
}

const plain = (title, value) => make("div", {}, make("span", { text: title }), make("b", { text: value }));
