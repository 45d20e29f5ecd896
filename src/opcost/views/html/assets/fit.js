// The largest size that fits: what the limit is used for at it.

import { data } from "./data.js";
import { make } from "./dom.js";
import { formatBytes } from "./format.js";
import { partsBar } from "./parts.js";
import { whenChanged } from "./state.js";

export function fitPanel() {
  const { limit, parts, title } = data.fit;
  const heading = make("h2");
  const bar = make("div");
  const show = () => {
    heading.textContent = `${formatBytes(limit)} at ${title}`;
    bar.replaceChildren(...partsBar(parts, limit));
  };
  show();
  whenChanged((names) => names.has("bytes") && show());
  return make("section", { class: "panel table fit", "aria-label": "What the limit is used for" }, make("div", { class: "tools" }, heading), bar);
}
