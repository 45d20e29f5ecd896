// The roofline of a device: operators by FLOP per byte; measured where there are times, else at the roof that binds them.

import { label, line, placeIn, roundTicks } from "./axes.js";
import { colourOf, familyLegend } from "./colours.js";
import { data, isWithin, ops, tree } from "./data.js";
import { announce, chooser, draw, hideTip, make, showTip } from "./dom.js";
import { formatCount, formatShare, formatTime } from "./format.js";
import { chosenNode, chosenOperator, chooseOperator } from "./selection.js";
import { choicesOf, familyOfOperator, isShownOp, shown, SHOWN_STATE } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";

const PAD = { left: 66, right: 16, top: 14, bottom: 40 };
const MOST = 4000;

// Operators with the same work, traffic and time are one point.
function pointsOf() {
  const found = new Map();
  for (let row = 0; row < ops.count; row += 1) {
    const flops = ops.of.flops(row);
    const bytes = ops.of.bytes(row);
    const time = ops.of.time?.(row) ?? null;
    if (!flops || !bytes) continue;
    const family = familyOfOperator(row);
    const name = `${family} ${ops.of.kind(row)} ${flops} ${bytes} ${time}`;
    const point = found.get(name);
    if (point) point.rows.push(row);
    else found.set(name, { flops, bytes, time, family, kind: ops.of.kind(row), dtype: ops.of.dtype?.(row), rows: [row] });
  }
  return [...found.values()];
}

// Of these the ones with operators that pass the filters, those with the most work first.
function shownPoints(every) {
  const times = ops.of.repeat ?? (() => 1);
  return every.map((point) => {
    const rows = point.rows.filter(isShownOp);
    return { ...point, rows, count: rows.reduce((sum, row) => sum + times(row), 0) };
  }).filter((point) => point.rows.length).sort((a, b) => b.flops * b.count - a.flops * a.count);
}

export function rooflinePanel() {
  const every = pointsOf();
  let all = [];
  let points = [];
  let from = null;
  // Anew once the filters are others and this view is looked at.
  const read = () => {
    if (from === shown()) return;
    from = shown();
    all = shownPoints(every);
    points = all.slice(0, MOST);
  };
  read();
  const devices = new Map(data.devices.map((device) => [device.name, device]));
  const device = () => devices.get(state.dev) ?? devices.get(data.device) ?? data.devices[0];
  const commonest = () => {
    const sums = new Map();
    for (const point of points) sums.set(point.dtype, (sums.get(point.dtype) ?? 0) + point.flops * point.count);
    return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0];
  };
  const own = commonest();
  const dtype = () => (state.dtype in device().flops ? state.dtype : own in device().flops ? own : Object.keys(device().flops)[0]);
  const deviceList = chooser("Device", data.devices.map((one) => [one.name, one.name]), device().name, (dev) => setState({ dev }));
  const types = make("span");
  const picture = draw("svg", { class: "plot", role: "img", tabindex: "0" });
  const frame = make("div", { class: "picture" }, picture);
  const said = make("p", { class: "faint" });
  const measured = points.some((point) => point.time);
  const legend = familyLegend(choicesOf("kind"));
  let placed = [];

  function show() {
    if (!frame.offsetParent) return;
    read();
    const { bandwidth } = device();
    const peak = device().flops[dtype()];
    const roof = (intensity) => Math.min(peak, bandwidth * intensity);
    const speed = (point) => (point.time ? (point.flops / point.time) * 1e9 : roof(point.flops / point.bytes));
    const taken = (point) => (point.time ?? (point.flops / roof(point.flops / point.bytes)) * 1e9) * point.count;
    const width = Math.max(260, frame.clientWidth);
    const height = Math.max(220, frame.clientHeight);
    const ridge = peak / bandwidth;
    const intensities = points.map((point) => point.flops / point.bytes);
    const speeds = points.map(speed);
    const lowX = Math.min(ridge / 20, ...intensities) / 1.6;
    const highX = Math.max(ridge * 8, ...intensities) * 1.6;
    const lowY = Math.min(roof(lowX), ...speeds) / 1.6;
    const highY = Math.max(peak, ...speeds) * 2.5;
    const across = (value, low, high, from, to) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from);
    const x = (value) => across(value, lowX, highX, PAD.left, width - PAD.right);
    const y = (value) => across(value, lowY, highY, height - PAD.bottom, PAD.top);
    const shapes = [];
    for (const tick of roundTicks(lowX, highX)) shapes.push(line(x(tick), PAD.top, x(tick), height - PAD.bottom, "rule"), label(x(tick), height - PAD.bottom + 14, tick >= 1 ? formatCount(tick) : String(Number(tick.toPrecision(1))), "middle"));
    for (const tick of roundTicks(lowY, highY)) shapes.push(line(PAD.left, y(tick), width - PAD.right, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, `${formatCount(tick).replace(".00", "")}`, "end"));
    shapes.push(label((PAD.left + width - PAD.right) / 2, height - 6, "FLOP per byte moved", "middle"), label(PAD.left + 4, PAD.top + 4, "FLOP/s"));
    shapes.push(draw("path", { d: `M${x(lowX)},${y(roof(lowX))} L${x(ridge)},${y(peak)} L${x(highX)},${y(peak)}`, class: "roof" }),
      label(width - PAD.right - 4, y(peak) - 20, `${formatCount(peak)}FLOP/s ${dtype()}`, "end", "strong"),
      label(x(ridge) - 14, y(peak) + 8, `${formatCount(bandwidth)}B/s`, "end", "strong"));
    const total = points.reduce((sum, point) => sum + taken(point), 0);
    const node = chosenNode();
    const one = chosenOperator();
    placed = points.map((point) => ({
      point, fill: colourOf(point.family), x: x(point.flops / point.bytes), y: y(speed(point)), r: 2.5 + 13 * Math.sqrt(taken(point) / total), share: taken(point) / total, taken: taken(point), speed: speed(point),
      chosen: node > 0 && point.rows.some((row) => (one >= 0 ? row === one : isWithin(ops.module[row], node))),
    }));
    for (const spot of placed) shapes.push(draw("circle", {
      cx: spot.x, cy: spot.y, r: spot.r, fill: spot.fill, class: `point${spot.chosen ? " chosen" : ""}`,
    }));
    const bound = placed.filter((spot) => spot.point.flops / spot.point.bytes < ridge).reduce((sum, spot) => sum + spot.share, 0);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-label", `Roofline of ${device().name}: ${formatShare(bound)} of the time is bound by memory; arrows walk through the points, those with the most time first`);
    picture.replaceChildren(...shapes);
    types.replaceChildren(chooser("Element type", Object.keys(device().flops).map((name) => [name, name]), dtype(), (name) => setState({ dtype: name })));
    deviceList.value = device().name;
    said.textContent = [
      measured ? "Points are measured speeds; their size is the share of the time." : "Nothing was timed: points stand at the roof that binds them, and their size is the share of the time that the peaks allow.",
      `${formatShare(bound)} of the time belongs to operators left of the ridge at ${ridge.toFixed(1)} FLOP per byte, bound by memory.`,
      all.length > MOST ? `The ${MOST.toLocaleString("en-US")} points with the most work of ${all.length.toLocaleString("en-US")}.` : "",
      devices.has(state.dev) || devices.has(data.device) ? "" : `The peaks of ${data.device || "its device"} are not known: choose a device like it above.`,
      `Peaks: ${device().source}.`,
    ].join(" ");
  }

  const near = (event) => {
    const [x, y] = placeIn(picture, event);
    let best = null;
    let least = 8;
    for (const spot of placed) {
      const distance = Math.hypot(spot.x - x, spot.y - y) - spot.r;
      if (distance < least) [best, least] = [spot, distance];
    }
    return best;
  };
  picture.addEventListener("click", (event) => near(event) && chooseOperator(near(event).point.rows[0]));
  picture.addEventListener("pointermove", (event) => {
    const spot = near(event);
    if (!spot) return hideTip();
    const { point } = spot;
    return showTip(event, [
      `${point.kind}${point.count > 1 ? `, ${point.count} times` : ""}`, tree.path[ops.module[point.rows[0]]] || tree.name(0), ops.of.ins?.(point.rows[0]) ?? "",
      `${(point.flops / point.bytes).toFixed(2)} FLOP per byte`, `${formatCount(spot.speed)}FLOP/s${point.time ? "" : " at most"}`,
      `${formatTime(spot.taken)}, ${formatShare(spot.share)}`,
    ].filter(Boolean));
  });
  picture.addEventListener("pointerleave", hideTip);
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !placed.length) return;
    const ranked = [...placed].sort((a, b) => b.share - a.share);
    const at = ranked.findIndex((spot) => spot.point.rows.includes(chosenOperator()));
    const spot = ranked[Math.max(0, Math.min(ranked.length - 1, at < 0 ? 0 : at + step))];
    chooseOperator(spot.point.rows[0]);
    announce(`${spot.point.kind}: ${formatShare(spot.share)} of the time, ${formatCount(spot.speed)}FLOP/s`);
    event.preventDefault();
  });
  whenChanged((names) => {
    if ([...SHOWN_STATE, "sel", "dev", "dtype", "view"].some((name) => names.has(name))) show();
  });
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "view", "aria-label": "Roofline" },
    make("div", { class: "tools" }, make("label", { class: "faint" }, "device: ", deviceList), types), frame, legend, said);
}
