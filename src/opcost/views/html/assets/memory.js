// Memory over the execution: what is there throughout, what the pass adds, the peak and the modules that hold it.

import { firstAfter, label, line, niceTicks, placeIn } from "./axes.js";
import { byteUnits, formatBytes } from "./format.js";
import { data, isWithin, ops, tree } from "./data.js";
import { announce, draw, hideTip, make, showTip } from "./dom.js";
import { key } from "./colours.js";
import { colourOfPart, partsBar } from "./parts.js";
import { choose, chosenNode, chosenOperator, chooseOperator } from "./selection.js";
import { state, whenChanged } from "./state.js";

const PAD = { left: 74, right: 12, top: 22, bottom: 30 };
// Parts of the axis for each phase: an update has the most operators, which add the least.
const USUAL_PARTS = 2;
const PARTS = { update: 1 };
const LETTER = 6;
const ORDER = "operators in the order of execution";

// Where each operator begins on an axis from 0 to 1; the operators of a phase share its part of the axis equally.
function beginningsOf(count, phases) {
  const runs = phases.map(([phase, first], place) => ({ phase, first, end: phases[place + 1]?.[1] ?? count }));
  const numbers = new Map();
  for (const run of runs) numbers.set(run.phase, (numbers.get(run.phase) ?? 0) + run.end - run.first);
  const parts = (phase) => PARTS[phase] ?? USUAL_PARTS;
  const whole = [...numbers.keys()].reduce((sum, phase) => sum + parts(phase), 0);
  const beginnings = new Float64Array(count + 1);
  for (const { phase, first, end } of runs) {
    const width = parts(phase) / numbers.get(phase) / whole;
    for (let step = first; step < end; step += 1) beginnings[step + 1] = beginnings[first] + (step + 1 - first) * width;
  }
  return { runs, beginnings };
}

export function memoryPanel() {
  const { memory } = data;
  const picture = draw("svg", { class: "plot", role: "img", tabindex: "0", "aria-label": `Memory over ${memory.curve.length} operators, peak ${formatBytes(memory.peak)}; arrows walk along the operators, P goes to the peak` });
  const frame = make("div", { class: "picture" }, picture);
  const legend = make("div", { class: "legend" });
  const parts = make("div", { class: "peak" });
  const count = memory.curve.length;
  const { runs, beginnings } = beginningsOf(count, memory.phases.length ? memory.phases : [["operators", 0]]);
  let left = 0;
  let wide = 1;

  function show() {
    if (!frame.offsetParent) return;
    const width = Math.max(240, frame.clientWidth);
    const height = Math.max(200, frame.clientHeight);
    const w = width - PAD.left - PAD.right;
    const h = height - PAD.top - PAD.bottom;
    const most = memory.peak * 1.04;
    left = PAD.left;
    wide = w;
    const x = (step) => PAD.left + beginnings[step] * w;
    const y = (bytes) => PAD.top + h - (bytes / most) * h;
    const shapes = [];
    for (const tick of niceTicks(most, 6, byteUnits.chosen === "iec" ? 1024 : 10)) {
      shapes.push(line(PAD.left, y(tick), PAD.left + w, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, formatBytes(tick), "end"));
    }
    // Each stretch of the picture shows the most of its operators, with the layers as they are at that moment.
    const stretches = [];
    for (let first = 0, end; first < count; first = end) {
      let best = first;
      for (end = first + 1; end < count && x(end + 1) - x(first) < 1; end += 1) if (memory.curve[end] > memory.curve[best]) best = end;
      stretches.push({ from: x(first), to: x(end), best });
    }
    let below = stretches.map(() => 0);
    for (const layer of layersOf(memory)) {
      const above = stretches.map(({ best }, place) => below[place] + layer.at(best));
      const upper = stretches.flatMap(({ from, to }, place) => [`${from},${y(above[place])}`, `${to},${y(above[place])}`]);
      const lower = stretches.flatMap(({ from, to }, place) => [`${from},${y(below[place])}`, `${to},${y(below[place])}`]).reverse();
      shapes.push(draw("polygon", { points: [...upper, ...lower].join(" "), fill: colourOfPart(layer.name), class: "layer" }));
      below = above;
    }
    shapes.push(...phaseMarks(runs, x, height), ...chosenMarks(x, h));
    const at = (x(memory.at) + x(memory.at + 1)) / 2;
    shapes.push(line(at, PAD.top, at, PAD.top + h, "peakline"),
      label(at, PAD.top - 8, `peak ${formatBytes(memory.peak)}`, at > width * 0.75 ? "end" : at < width * 0.25 ? "start" : "middle", "strong"),
      label(PAD.left + w / 2, height - 4, fitting(runs.length > 1 ? ["operators in the order of execution, each phase at a scale of its own", ORDER] : [ORDER], w), "middle"));
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.replaceChildren(...shapes);
    legend.replaceChildren(...layersOf(memory).map((layer) => key(layer.title, colourOfPart(layer.name))));
    parts.replaceChildren(...peakOf(memory));
  }

  const stepAt = (event) => {
    const [x] = placeIn(picture, event);
    const at = (x - left) / wide;
    return at >= 0 && at < 1 ? firstAfter(beginnings, at) - 1 : -1;
  };
  picture.addEventListener("click", (event) => {
    const step = stepAt(event);
    if (step >= 0 && ops && step < ops.count) chooseOperator(step);
  });
  picture.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    if (step < 0) return hideTip();
    const where = ops && step < ops.count ? [`${ops.of.raw(step)}`, tree.path[ops.module[step]] || tree.name(0)] : [];
    const { phase } = runs.findLast((run) => run.first <= step);
    return showTip(event, [formatBytes(memory.curve[step]), `operator ${step + 1}${runs.length > 1 ? `, ${phase}` : ""}`, ...where]);
  });
  picture.addEventListener("pointerleave", hideTip);
  picture.addEventListener("keydown", (event) => {
    if (!ops || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = chosenOperator() >= 0 ? chosenOperator() : -1;
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: count - 1, p: memory.at, P: memory.at };
    if (!(event.key in moves)) return;
    const step = Math.max(0, Math.min(Math.min(count, ops.count) - 1, moves[event.key]));
    chooseOperator(step);
    announce(`operator ${step + 1}, ${ops.of.raw(step)}: ${formatBytes(memory.curve[step])} live`);
    event.preventDefault();
  });
  whenChanged((names) => ["sel", "bytes", "view", "theme"].some((name) => names.has(name)) && show());
  new ResizeObserver(show).observe(frame);
  addEventListener("beforeprint", show);
  return make("section", { class: "view", "aria-label": "Memory" }, frame, legend, parts);
}

function layersOf(memory) {
  const titles = { added: "added by the pass", all: "all that is live" };
  return memory.layers.map((layer) => ({ ...layer, title: titles[layer.name] ?? layer.name, at: (step) => layer.constant ?? layer.curve[step] }));
}

// The first of these texts that there is room for.
const fitting = (texts, room) => texts.find((text) => text.length * LETTER < room) ?? "";

// Each phase with the numbers of its operators, as much of it as there is room for.
function phaseMarks(runs, x, height) {
  const bottom = height - PAD.bottom;
  return runs.flatMap(({ phase, first, end }, place) => {
    const numbers = `${(first + 1).toLocaleString("en-US")}–${end.toLocaleString("en-US")}`;
    return [
      ...(place ? [line(x(first), PAD.top, x(first), bottom, "phase")] : []),
      label(x(first) + 3, bottom + 13, fitting([`${phase} ${numbers}`, phase], x(end) - x(first))),
    ];
  });
}

// The operators of what is chosen, as stretches below the curve.
function chosenMarks(x, h) {
  const node = chosenNode();
  if (node <= 0 || !ops) return [];
  const one = chosenOperator();
  const marks = [];
  let first = -1;
  for (let step = 0; step <= ops.count; step += 1) {
    const inside = step < ops.count && (one >= 0 ? step === one : isWithin(ops.module[step], node));
    if (inside && first < 0) first = step;
    if (!inside && first >= 0) {
      marks.push(draw("rect", { x: x(first), y: PAD.top + h, width: Math.max(2, x(step) - x(first)), height: 5, class: "mark" }));
      first = -1;
    }
  }
  return marks;
}

function peakOf(memory) {
  const holders = memory.holders.map(([path, bytes, tensors]) => {
    const node = tree?.byPath.get(path) ?? -1;
    const text = `${path || tree?.name(0) || "the model itself"}  ${formatBytes(bytes)}, ${tensors} tensor${tensors === 1 ? "" : "s"}`;
    return make("li", {}, make("button", { type: "button", class: "plain", text, on: { click: () => node >= 0 && choose(node) } }));
  });
  return [
    make("h2", { text: "At the peak" }), ...partsBar(memory.parts, memory.peak),
    ...memory.sentences.map((text) => make("p", { class: "faint", text })),
    ...(holders.length ? [make("h2", { text: "Held by the results of" }), make("ol", { class: "holders" }, ...holders)] : []),
  ];
}
