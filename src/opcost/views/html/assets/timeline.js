// Devices, below them the host, and steps over time on a canvas: the wheel zooms, dragging moves, arrows and + and - do the same.

import { firstAfter, niceTicks } from "./axes.js";
import { colourOf, familyLegend, familyOf } from "./colours.js";
import { data, isWithin, tree } from "./data.js";
import { announce, hideTip, make, showTip } from "./dom.js";
import { formatTime } from "./format.js";
import { choose, chosenNode } from "./selection.js";
import { setState, state, whenChanged } from "./state.js";

const NAME = 138;
const AXIS = 22;
const STEP = 16;
const LANE = 22;
const LETTER = 6.2;
const TICK = 90;

const isHost = (lane) => /^(rank \d+ )?host\b/.test(lane.title);

// Lanes of devices first: they are what is waited for.
function unpackLanes({ lanes: columns, words, steps }) {
  const lanes = columns.map((lane) => {
    const start = new Float64Array(lane.step.length);
    let at = 0;
    lane.step.forEach((step, place) => { start[place] = at += step; });
    const length = Float64Array.from(lane.length);
    // How far before the window an event may begin that still reaches into it.
    return { ...lane, start, length, longest: length.reduce((most, one) => Math.max(most, one), 0) };
  });
  const end = lanes.reduce((most, lane) => lane.start.reduce((last, start, place) => Math.max(last, start + lane.length[place]), most), 1);
  return { lanes: [...lanes.filter((lane) => !isHost(lane)), ...lanes.filter(isHost)], end, words, steps };
}

const timeline = data.timeline ? unpackLanes(data.timeline) : null;

// From when to when a device had nothing to do for the longest time between its first and its last kernel.
export function longestIdle() {
  const devices = new Map();
  for (const lane of timeline.lanes.filter((one) => !isHost(one))) {
    const device = lane.title.replace(/ (stream|collectives) .*/, "");
    const spans = Array.from(lane.start, (start, place) => [start, start + lane.length[place]]);
    devices.set(device, [...(devices.get(device) ?? []), ...spans]);
  }
  let longest = [0, 0];
  for (const spans of devices.values()) {
    spans.sort((a, b) => a[0] - b[0]);
    let reached = spans[0][0];
    for (const [start, end] of spans) {
      if (start - reached > longest[1] - longest[0]) longest = [reached, start];
      reached = Math.max(reached, end);
    }
  }
  return longest;
}

// From when to when a device was idle that a potential saving is about.
function idleShown() {
  const [begin, until] = state.idle.split("-").map(Number);
  return until > begin ? { begin, until } : null;
}

export function timelinePanel() {
  const { lanes, end, words, steps } = timeline;
  const top = AXIS + (steps.length ? STEP : 0);
  // An operator is known by its path, a kernel by its name.
  const named = new Map();
  if (tree) for (let node = tree.count - 1; node > 0; node -= 1) named.set(tree.name(node), node);
  const nodeOf = words.map((word) => tree?.byPath.get(word) ?? named.get(word) ?? -1);
  const families = data.timeline.sorts.map((kind) => familyOf(kind));
  const colour = families.map(colourOf);
  const legend = familyLegend(families);

  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `Timeline of ${formatTime(end)} on ${lanes.length} lanes; arrows move, plus and minus zoom` });
  const frame = make("div", { class: "picture time" }, canvas);
  frame.style.height = `${Math.min(lanes.length * LANE + top + 2, 560)}px`;
  const shown = make("output");
  let from = 0;
  let to = end;
  let waiting = false;

  const readWindow = () => {
    const [a, b] = [Number(state.from || 0), Number(state.to || end)];
    if (a >= 0 && b > a && b <= end * 1.0001) [from, to] = [a, Math.min(b, end)];
    else [from, to] = [0, end];
  };

  function look(first, last) {
    const span = Math.min(end, Math.max(10, last - first));
    from = Math.max(0, Math.min(first, end - span));
    to = from + span;
    setState({ from: from > 0 ? String(Math.round(from)) : "", to: to < end ? String(Math.round(to)) : "" });
    later();
  }

  const later = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  };

  function paint() {
    if (!frame.offsetParent) return;
    const width = frame.clientWidth;
    const height = lanes.length * LANE + top;
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    const look = getComputedStyle(document.documentElement);
    const ink = (name) => look.getPropertyValue(name).trim();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = ink("--ground");
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const wide = width - NAME;
    const perNs = wide / (to - from);
    const x = (time) => NAME + (time - from) * perNs;
    paintSteps(pen, ink, x, height);
    paintAxis(pen, ink, x, height, Math.max(1, Math.floor(wide / TICK)));
    const chosen = chosenNode();
    // What lies in what is chosen, or is called by its name, stands out.
    const dim = words.map((word, name) => (state.kind && families[name] !== state.kind) || chosen > 0 && !(nodeOf[name] > 0 && isWithin(nodeOf[name], chosen)) && word !== tree.name(chosen));
    lanes.forEach((lane, row) => paintLane(pen, lane, top + row * LANE, x, perNs, dim));
    paintIdle(pen, ink, x, height);
    pen.fillStyle = ink("--ground");
    pen.fillRect(0, 0, NAME - 4, height);
    pen.fillStyle = ink("--text");
    lanes.forEach((lane, row) => {
      const room = Math.floor((NAME - 12) / LETTER);
      pen.fillText(lane.title.length > room ? `${lane.title.slice(0, room - 1)}…` : lane.title, 4, top + row * LANE + LANE / 2);
    });
    const idle = idleShown();
    shown.textContent = `${formatTime(to - from)} from ${formatTime(from)}, of ${formatTime(end)}${idle ? `; idle for ${formatTime(idle.until - idle.begin)}` : ""}`;
  }

  function paintAxis(pen, ink, x, height, count) {
    const ticks = niceTicks(to - from, Math.min(8, count));
    const size = ticks.length > 1 ? ticks[1] : to - from;
    for (let time = Math.ceil(from / size) * size; time <= to; time += size) {
      pen.fillStyle = ink("--line");
      pen.fillRect(x(time), AXIS - 6, 1, height);
      pen.fillStyle = ink("--faint");
      pen.fillText(formatTime(time), x(time) + 3, 9);
    }
  }

  // Every other step on a darker ground, each with its number.
  function paintSteps(pen, ink, x, height) {
    steps.forEach(([begin, until, number], place) => {
      if (until <= from || begin >= to) return;
      const [left, right] = [Math.max(NAME, x(begin)), x(until)];
      pen.fillStyle = ink(place % 2 ? "--ground" : "--raised");
      pen.fillRect(left, AXIS, right - left, height);
      pen.fillStyle = ink("--faint");
      pen.fillRect(left, AXIS, 1, height);
      const text = `step ${number}`;
      if (right - left > text.length * LETTER + 6) pen.fillText(text, left + 4, AXIS + STEP / 2);
    });
  }

  function paintIdle(pen, ink, x, height) {
    const idle = idleShown();
    if (!idle || idle.until <= from || idle.begin >= to) return;
    const [left, right] = [Math.max(NAME, x(idle.begin)), x(idle.until)];
    pen.strokeStyle = ink("--warn");
    pen.lineWidth = 2;
    pen.strokeRect(left, top + 1, right - left, height - top - 2);
    pen.fillStyle = ink("--warn");
    pen.globalAlpha = 0.12;
    pen.fillRect(left, top, right - left, height - top);
    pen.globalAlpha = 1;
  }

  function paintLane(pen, lane, top, x, perNs, dim) {
    const { start, length, name } = lane;
    let place = firstAfter(start, from - lane.longest);
    // Events narrower than a point are gathered, and each point is drawn once, as dark as it is full.
    let point = -1;
    let full = 0;
    let owner = 0;
    const flush = () => {
      if (point < 0) return;
      pen.globalAlpha = (dim[owner] ? 0.25 : 1) * (0.3 + 0.7 * Math.min(1, full));
      pen.fillStyle = colour[owner];
      pen.fillRect(point, top + 2, 1, LANE - 4);
      pen.globalAlpha = 1;
      point = -1;
      full = 0;
    };
    for (; place < start.length && start[place] < to; place += 1) {
      const w = length[place] * perNs;
      const left = x(start[place]);
      if (left + w < NAME) continue;
      if (w < 1) {
        const at = Math.floor(left);
        if (at !== point) flush();
        point = at;
        full += Math.max(w, 0.15);
        owner = name[place];
        continue;
      }
      flush();
      const busy = lane.count && lane.count[place] > 1 ? lane.busy[place] / (length[place] || 1) : 1;
      pen.globalAlpha = (dim[name[place]] ? 0.25 : 0.9) * (0.35 + 0.65 * Math.min(1, busy));
      pen.fillStyle = colour[name[place]];
      const visible = Math.max(left, NAME);
      pen.fillRect(visible, top + 2, Math.max(1, left + w - visible - (w > 3 ? 0.6 : 0)), LANE - 4);
      pen.globalAlpha = 1;
      const room = Math.floor((Math.min(left + w, canvas.clientWidth) - visible - 6) / LETTER);
      if (room > 3) {
        const text = lane.count && lane.count[place] > 1 ? `${lane.count[place]} events` : words[name[place]];
        pen.fillStyle = colour[name[place]] === "#e69f00" || colour[name[place]] === "#56b4e9" || colour[name[place]] === "#b8a800" ? "#14171b" : "#fff";
        pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, visible + 3, top + LANE / 2);
      }
    }
    flush();
  }

  const eventAt = (event) => {
    const room = canvas.getBoundingClientRect();
    const lane = lanes[Math.floor((event.clientY - room.top - top) / LANE)];
    const time = from + ((event.clientX - room.left - NAME) / (room.width - NAME)) * (to - from);
    if (!lane || event.clientX - room.left < NAME) return null;
    const slack = ((to - from) / room.width) * 2;
    for (let place = firstAfter(lane.start, time + slack) - 1; place >= 0 && lane.start[place] >= time - lane.longest - slack; place -= 1) {
      if (lane.start[place] + lane.length[place] >= time - slack) return { lane, place };
    }
    return null;
  };

  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const by = ((held.x - event.clientX) / (canvas.clientWidth - NAME)) * (to - from);
      held.moved ||= Math.abs(held.x - event.clientX) > 3;
      if (held.moved) look(held.from + by, held.from + by + (to - from));
      return;
    }
    const found = eventAt(event);
    if (!found) return hideTip();
    const { lane, place } = found;
    const several = lane.count && lane.count[place] > 1;
    showTip(event, [
      words[lane.name[place]], several ? `and others: ${lane.count[place]} events, busy ${formatTime(lane.busy[place])} of ${formatTime(lane.length[place])}` : formatTime(lane.length[place]),
      `at ${formatTime(lane.start[place])}, ${lane.title}`,
    ]);
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = held?.moved;
    held = null;
    const found = moved ? null : eventAt(event);
    const node = found ? nodeOf[found.lane.name[found.place]] : -1;
    if (node > 0) choose(node);
  });
  canvas.addEventListener("pointerleave", hideTip);
  const zoom = (factor, at = 0.5) => {
    const middle = from + (to - from) * at;
    look(middle - (to - from) * factor * at, middle + (to - from) * factor * (1 - at));
  };
  canvas.addEventListener("wheel", (event) => {
    const room = canvas.getBoundingClientRect();
    const at = Math.max(0, Math.min(1, (event.clientX - room.left - NAME) / (room.width - NAME)));
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = ((event.deltaX || event.deltaY) / room.width) * (to - from);
      look(from + by, to + by);
    } else zoom(Math.exp(event.deltaY / 400), at);
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("dblclick", () => look(0, end));
  canvas.addEventListener("keydown", (event) => {
    const step = (to - from) / 5;
    const moves = {
      ArrowLeft: () => look(from - step, to - step), ArrowRight: () => look(from + step, to + step), "+": () => zoom(0.5), "=": () => zoom(0.5),
      "-": () => zoom(2), Home: () => look(0, end),
    };
    if (!moves[event.key]) return;
    moves[event.key]();
    announce(`${formatTime(from)} to ${formatTime(to)}`);
    event.preventDefault();
  });
  const button = (title, act) => make("button", { type: "button", class: "plain", text: title, on: { click: act } });
  whenChanged((names) => {
    if (names.has("from") || names.has("to")) readWindow();
    if (["from", "to", "idle", "sel", "kind", "theme", "view"].some((name) => names.has(name))) later();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
  readWindow();
  new ResizeObserver(later).observe(frame);
  addEventListener("beforeprint", paint);
  return make("section", { class: "panel time", id: "timeline", "aria-label": "Timeline" },
    make("div", { class: "tools" }, make("h2", { text: "Timeline" }), button("zoom in", () => zoom(0.5)), button("zoom out", () => zoom(2)), button("all", () => { setState({ idle: "" }); look(0, end); }), shown,
      make("span", { class: "faint", text: "the wheel zooms, dragging moves" })),
    frame, legend);
}
