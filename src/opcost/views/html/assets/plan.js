// Layouts of many GPUs: memory against throughput, one point for each, and the memory that a GPU has as a line.

import { label, line, niceTicks, placeIn } from "./axes.js";
import { COLOURS, key } from "./colours.js";
import { data } from "./data.js";
import { draw, hideTip, make, showTip } from "./dom.js";
import { byteUnits, formatAs, formatBytes } from "./format.js";
import { whenChanged } from "./state.js";

const PAD = { left: 78, right: 24, top: 26, bottom: 42 };
const RADIUS = 5;
const TICK_ROOM = 110;
const NEAR = 4; // layouts that need less than a quarter of the limit are drawn without it
const LIMIT_ROOM = 80;
const FARTHEST = 2; // times the limit: layouts that need more are at the edge

export function planPanel() {
  const { limit, title, names, memory, rates, checkpoints, waits, counted } = data.plan;
  const kinds = [...new Set(checkpoints)];
  const picture = draw("svg", { class: "plot", role: "img" });
  const frame = make("div", { class: "picture sweep" }, picture);
  const legend = make("div", { class: "legend" });
  let spots = [];

  const limitLabel = (x, width) => (x < width - LIMIT_ROOM ? label(x + 6, PAD.top + 12, formatBytes(limit), "start", "strong") : label(x - 6, PAD.top + 12, formatBytes(limit), "end", "strong"));

  function show() {
    if (!frame.offsetParent) return;
    const [width, height] = [Math.max(260, frame.clientWidth), Math.max(220, frame.clientHeight)];
    const [needed, fastest] = [Math.max(...memory), Math.max(...rates) || 1];
    const isNear = needed > limit / NEAR;
    const most = isNear ? Math.min(Math.max(needed, limit), FARTHEST * limit) : 1.05 * needed;
    const x = (bytes) => PAD.left + (Math.min(bytes, most) / most) * (width - PAD.left - PAD.right);
    const y = (rate) => height - PAD.bottom - (rate / (1.05 * fastest)) * (height - PAD.bottom - PAD.top);
    const shapes = [
      ...niceTicks(most, Math.min(8, (width - PAD.left) / TICK_ROOM), byteUnits.chosen === "iec" ? 1024 : 10).flatMap((tick) => [line(x(tick), PAD.top, x(tick), height - PAD.bottom, "rule"), label(x(tick), height - PAD.bottom + 14, formatBytes(tick), "middle")]),
      ...niceTicks(fastest, 6).flatMap((tick) => [line(PAD.left, y(tick), width - PAD.right, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, formatAs("number", tick), "end")]),
      ...(isNear ? [line(x(limit), PAD.top, x(limit), height - PAD.bottom, "limit"), limitLabel(x(limit), width)] : []),
      label((PAD.left + width) / 2, height - 6, "memory", "middle", "strong"), label(4, PAD.top - 12, title, "start", "strong"),
    ];
    // The fastest last, so that it is on top.
    spots = names.map((name, place) => ({ name, place, x: x(memory[place]), y: y(rates[place] ?? 0) })).reverse();
    for (const spot of spots) {
      const colour = COLOURS[kinds.indexOf(checkpoints[spot.place])];
      if (rates[spot.place] === null) shapes.push(draw("path", { d: `M${spot.x - 3},${spot.y - 3}l6,6m0,-6l-6,6`, class: "over" }));
      else if (!counted[spot.place]) shapes.push(draw("circle", { cx: spot.x, cy: spot.y, r: RADIUS, stroke: colour, class: "curve" }));
      else shapes.push(draw("circle", { cx: spot.x, cy: spot.y, r: spot.place ? RADIUS : RADIUS + 2, fill: colour, class: `point${spot.place ? "" : " chosen"}` }));
    }
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-label", `Throughput by memory of ${names.length} layouts; the fastest is ${names[0]}`);
    picture.replaceChildren(...shapes);
    const remarks = ["filled: counted itself", ...(rates.includes(null) ? ["crosses: more than the memory"] : []), ...(isNear ? [] : [`a GPU has ${formatBytes(limit)}`])];
    legend.replaceChildren(...kinds.map((kind, place) => key(`checkpoint ${kind}`, COLOURS[place])), make("span", { class: "faint", text: remarks.join("; ") }));
  }

  picture.addEventListener("pointermove", (event) => {
    const [x, y] = placeIn(picture, event);
    const spot = spots.findLast((one) => Math.hypot(one.x - x, one.y - y) < 2 * RADIUS);
    if (!spot) return hideTip();
    const rate = rates[spot.place];
    return showTip(event, [
      names[spot.place], `memory: ${formatBytes(memory[spot.place])}`,
      rate === null ? `${formatBytes(memory[spot.place] - limit)} too much` : `${title}: ${formatAs("number", Math.round(rate))}`, ...(waits[spot.place] ? [`waits for ${waits[spot.place]}`] : []),
    ]);
  });
  picture.addEventListener("pointerleave", hideTip);
  whenChanged((changed) => ["bytes", "theme"].some((name) => changed.has(name)) && show());
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "panel table", "aria-label": "Layouts" }, make("div", { class: "tools" }, make("h2", { text: "Memory and throughput" })), frame, legend);
}
