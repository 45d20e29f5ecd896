// A sweep over sizes: curves over one variable, for two of them a curve for each size of the other, or a heat map.

import { label, line, logScale, placeIn, roundTicks } from "./axes.js";
import { COLOURS, GREY, key } from "./colours.js";
import { data } from "./data.js";
import { chooser, draw, hideTip, make, showTip, switcher } from "./dom.js";
import { formatAs } from "./format.js";
import { setState, state, whenChanged } from "./state.js";

const PAD = { left: 78, right: 20, top: 24, bottom: 42 };
// Dark to light without red and green beside each other: steps of cividis.
const SCALE = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];

function shade(part) {
  const at = Math.max(0, Math.min(0.9999, part)) * (SCALE.length - 1);
  const low = SCALE[Math.floor(at)];
  const high = SCALE[Math.floor(at) + 1];
  return low.map((value, place) => Math.round(value + (high[place] - value) * (at - Math.floor(at))));
}

export function sweepPanel() {
  const { variables, sizes, counted, fits, quantities } = data.sweep;
  const two = variables.length === 2;
  const shapeOf = () => (state.shape === "curves" ? "curves" : "heat");
  const quantity = () => quantities.find((one) => one.name === state.qty) ?? quantities[0];
  const list = chooser("Amounts are", quantities.map((one) => [one.name, one.title]), quantity().name, (qty) => setState({ qty }));
  const shapes = two ? switcher("Shape", [["heat", "heat map"], ["curves", "curves"]], shapeOf(), (shape) => setState({ shape })) : null;
  const picture = draw("svg", { class: "plot", role: "img" });
  const frame = make("div", { class: "picture sweep" }, picture);
  const legend = make("div", { class: "legend" });
  let spots = [];

  function show() {
    if (!frame.offsetParent) return;
    const width = Math.max(260, frame.clientWidth);
    const height = Math.max(220, frame.clientHeight);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-label", `${quantity().title} by ${variables.join(" and ")}, ${sizes.length} points`);
    spots = [];
    picture.replaceChildren(...(two && shapeOf() === "heat" ? heat(width, height) : curves(width, height)));
  }

  function curves(width, height) {
    const { amounts, bands, unit, title } = quantity();
    const known = sizes.map((_, place) => place).filter((place) => amounts[place] > 0);
    const all = known.flatMap((place) => [amounts[place], ...(bands?.[place] ?? [])]);
    const x = logScale(sizes.map((size) => size[0]), PAD.left + 8, width - PAD.right - 8, 1);
    const y = logScale(all, height - PAD.bottom, PAD.top);
    const shapes = roundTicks(...y.range, unit).flatMap((tick) => [line(PAD.left, y(tick), width - PAD.right, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, formatAs(unit, tick), "end")]);
    let before = -Infinity;
    for (const size of [...new Set(sizes.map((one) => one[0]))].sort((a, b) => a - b)) {
      shapes.push(line(x(size), PAD.top, x(size), height - PAD.bottom, "rule"));
      if (x(size) - before > 34) {
        shapes.push(label(x(size), height - PAD.bottom + 14, String(size), "middle"));
        before = x(size);
      }
    }
    shapes.push(label((PAD.left + width) / 2, height - 6, variables[0], "middle", "strong"), label(4, PAD.top - 6, title, "start", "strong"));
    const groups = new Map();
    for (const place of known) {
      const name = two ? sizes[place][1] : 0;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(place);
    }
    [...groups].forEach(([, places], number) => {
      const colour = COLOURS[number] ?? GREY;
      places.sort((a, b) => sizes[a][0] - sizes[b][0]);
      if (bands && places.every((place) => bands[place])) {
        const edge = [...places.map((place) => [place, 1]), ...[...places].reverse().map((place) => [place, 0])];
        shapes.push(draw("polygon", { points: edge.map(([place, side]) => `${x(sizes[place][0])},${y(bands[place][side])}`).join(" "), fill: colour, "fill-opacity": 0.18 }));
      }
      shapes.push(draw("polyline", { points: places.map((place) => `${x(sizes[place][0])},${y(amounts[place])}`).join(" "), stroke: colour, class: "curve" }));
      for (const place of places) {
        const spot = { place, x: x(sizes[place][0]), y: y(amounts[place]) };
        spots.push(spot);
        shapes.push(draw("circle", { cx: spot.x, cy: spot.y, r: 3.4, fill: counted[place] ? colour : "var(--ground)", stroke: colour, "stroke-width": 1.5 }));
        if (fits[place] === false) shapes.push(draw("path", { d: `M${spot.x - 6},${spot.y - 6}l12,12m0,-12l-12,12`, class: "over" }));
      }
    });
    legend.replaceChildren(
      ...(two ? [...groups.keys()].map((size, number) => key(`${variables[1]} ${size}`, COLOURS[number] ?? GREY)) : []),
      make("span", { class: "faint", text: remarks(bands) }));
    return shapes;
  }

  const remarks = (bands) => [
    ...(counted.includes(false) ? ["filled: counted; hollow: by polynomials through counted points"] : []),
    ...(bands ? ["the band is the 80 % interval"] : []),
    ...(fits.includes(false) ? ["crossed out: more than the device's memory"] : []),
  ].join("; ");

  function heat(width, height) {
    const { amounts, unit } = quantity();
    const [columns, rows] = [0, 1].map((axis) => [...new Set(sizes.map((size) => size[axis]))].sort((a, b) => a - b));
    const known = amounts.filter((amount) => amount > 0);
    const [low, high] = [Math.log(Math.min(...known)), Math.log(Math.max(...known))];
    const w = (width - PAD.left - PAD.right) / columns.length;
    const h = (height - PAD.top - PAD.bottom) / rows.length;
    const shapes = [];
    sizes.forEach((size, place) => {
      const amount = amounts[place];
      const [left, top] = [PAD.left + columns.indexOf(size[0]) * w, PAD.top + (rows.length - 1 - rows.indexOf(size[1])) * h];
      const colour = amount > 0 ? shade(high > low ? (Math.log(amount) - low) / (high - low) : 0.5) : null;
      shapes.push(draw("rect", { x: left, y: top, width: Math.max(1, w - 1), height: Math.max(1, h - 1), fill: colour ? `rgb(${colour.join(" ")})` : "var(--line)" }));
      spots.push({ place, x: left + w / 2, y: top + h / 2, w: w / 2, h: h / 2 });
      const text = amount === null || amount === undefined ? "?" : formatAs(unit, amount);
      if (w > 6.4 * text.length && h > 15) shapes.push(draw("text", { x: left + w / 2, y: top + h / 2 + 4, text, "text-anchor": "middle", class: "cell", fill: colour && colour[0] + colour[1] > 270 ? "#14171b" : "#fff" }));
    });
    columns.forEach((size, place) => shapes.push(label(PAD.left + (place + 0.5) * w, height - PAD.bottom + 14, String(size), "middle")));
    rows.forEach((size, place) => shapes.push(label(PAD.left - 6, PAD.top + (rows.length - 0.5 - place) * h + 4, String(size), "end")));
    shapes.push(label((PAD.left + width) / 2, height - 6, variables[0], "middle", "strong"), label(4, PAD.top - 6, variables[1], "start", "strong"));
    legend.replaceChildren(make("span", { class: "faint", text: `from ${formatAs(unit, Math.min(...known))} to ${formatAs(unit, Math.max(...known))}, on a logarithmic scale` }));
    return shapes;
  }

  picture.addEventListener("pointermove", (event) => {
    const [x, y] = placeIn(picture, event);
    const spot = spots.find((one) => (one.w ? Math.abs(one.x - x) <= one.w && Math.abs(one.y - y) <= one.h : Math.hypot(one.x - x, one.y - y) < 9));
    if (!spot) return hideTip();
    return showTip(event, [
      variables.map((name, axis) => `${name} ${sizes[spot.place][axis]}`).join(", "),
      ...quantities.map((one) => `${one.title}: ${formatAs(one.unit, one.amounts[spot.place])}`), counted[spot.place] ? "counted" : "by polynomials", ...(fits[spot.place] === false ? ["more than the device's memory"] : []),
    ]);
  });
  picture.addEventListener("pointerleave", hideTip);
  whenChanged((names) => {
    list.value = quantity().name;
    shapes?.show(shapeOf());
    if (["qty", "shape", "bytes", "theme"].some((name) => names.has(name))) show();
  });
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "panel table", "aria-label": "Sweep" }, make("div", { class: "tools" }, make("h2", { text: `By ${variables.join(" and ")}` }), list, shapes), frame, legend);
}
