// Sources as points: one quantity against another, such as MACs against params, or latency where it was predicted.

import { baseline } from "./compared.js";
import { COLOURS, GREY } from "./colours.js";
import { label, line, logScale, placeIn, roundTicks } from "./axes.js";
import { data } from "./data.js";
import { chooser, draw, hideTip, make, showTip } from "./dom.js";
import { formatAs } from "./format.js";
import { setState, state, whenChanged } from "./state.js";

const PAD = { left: 78, right: 24, top: 26, bottom: 42 };
const LETTER = 6.4;
const LINE = 14;
const RADIUS = 6;

// Quantities that are known and more than nothing for at least two sources.
const comparable = () => data.compared.totals.filter((total) => total.amounts.filter((amount) => amount > 0).length > 1);

export const hasScatter = () => comparable().length > 1 && data.compared.sources.length > 2;

export function scatterPanel() {
  const offered = comparable();
  const named = (name, ...usual) => [name, ...usual].map((one) => offered.find((total) => total.name === one)).find(Boolean);
  const timed = offered.find((total) => total.unit === "time")?.name;
  const across = () => named(state.across, "params", offered[0].name);
  const up = () => named(state.up, timed, "macs", "flops", offered[1].name);
  const choices = offered.map((total) => [total.name, total.title]);
  const lists = [chooser("Upwards", choices, up().name, (name) => setState({ up: name })), chooser("Across", choices, across().name, (name) => setState({ across: name }))];
  const picture = draw("svg", { class: "plot", role: "img" });
  const frame = make("div", { class: "picture sweep" }, picture);
  let spots = [];

  function show() {
    if (!frame.offsetParent) return;
    const [width, height] = [Math.max(260, frame.clientWidth), Math.max(220, frame.clientHeight)];
    const [x, y] = [
      logScale(across().amounts, PAD.left, width - PAD.right),
      logScale(up().amounts, height - PAD.bottom, PAD.top),
    ];
    const shapes = [
      ...roundTicks(...x.range, across().unit).flatMap((tick) => [line(x(tick), PAD.top, x(tick), height - PAD.bottom, "rule"), label(x(tick), height - PAD.bottom + 14, formatAs(across().unit, tick), "middle")]),
      ...roundTicks(...y.range, up().unit).flatMap((tick) => [line(PAD.left, y(tick), width - PAD.right, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, formatAs(up().unit, tick), "end")]),
      label((PAD.left + width) / 2, height - 6, across().title, "middle", "strong"), label(PAD.left - 6, PAD.top - 12, up().title, "start", "strong"),
    ];
    spots = data.compared.sources.map((source, place) => ({ source, place, amounts: [up().amounts[place], across().amounts[place]] }))
      .filter((spot) => spot.amounts.every((amount) => amount > 0))
      .map((spot) => ({ ...spot, x: x(spot.amounts[1]), y: y(spot.amounts[0]) }));
    // Labels from top to bottom, each below those that it would be on.
    const written = [];
    for (const spot of [...spots].sort((a, b) => a.y - b.y)) {
      const text = spot.source.split("/").at(-1);
      const wide = text.length * LETTER;
      const left = spot.x + RADIUS + 4 + wide > width ? spot.x - RADIUS - 4 - wide : spot.x + RADIUS + 4;
      let top = spot.y + 4;
      for (const other of written) if (left < other.right && left + wide > other.left && top < other.top + LINE) top = other.top + LINE;
      written.push({ left, right: left + wide, top });
      shapes.push(
        draw("circle", { cx: spot.x, cy: spot.y, r: RADIUS, fill: COLOURS[spot.place] ?? GREY, class: `point${spot.place === baseline() ? " chosen" : ""}` }),
        label(left, top, text, "start", spot.place === baseline() ? "strong" : "axis"));
    }
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("aria-label", `${up().title} by ${across().title}: ${spots.map((spot) => `${spot.source} ${formatAs(up().unit, spot.amounts[0])}, ${formatAs(across().unit, spot.amounts[1])}`).join("; ")}`);
    picture.replaceChildren(...shapes);
  }

  picture.addEventListener("pointermove", (event) => {
    const [x, y] = placeIn(picture, event);
    const spot = spots.find((one) => Math.hypot(one.x - x, one.y - y) < 2 * RADIUS);
    if (!spot) return hideTip();
    return showTip(event, [spot.source, ...[up(), across()].map((total, place) => `${total.title}: ${formatAs(total.unit, spot.amounts[place])}`)]);
  });
  picture.addEventListener("pointerleave", hideTip);
  whenChanged((names) => {
    [lists[0].value, lists[1].value] = [up().name, across().name];
    if (["up", "across", "base", "bytes", "theme"].some((name) => names.has(name))) show();
  });
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "panel table", "aria-label": "Scatter" },
    make("div", { class: "tools" }, make("h2", { text: "Against each other" }), lists[0], " by ", lists[1]), frame);
}
