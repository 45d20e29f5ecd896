// Operators and tensors as a graph: modules are closed boxes that open; shapes stand on the edges. Drawn on a canvas.

import { colourOf, familyLegend } from "./colours.js";
import { data, isWithin, ops, quantityOf, tree } from "./data.js";
import { announce, hideTip, make, showTip } from "./dom.js";
import { formatAs, formatShare } from "./format.js";
import { layered } from "./layers.js";
import { detailLines } from "./modules.js";
import { choose, chosenNode, chosenOperator, chooseOperator } from "./selection.js";
import { familyOfOperator } from "./shown.js";
import { setState, state, whenChanged } from "./state.js";

const LETTER = 6.4;
const MOST_KEPT = 400;
const TITLE = 13;

export function graphPanel() {
  const opened = new Set();
  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": "Graph of modules and operators; arrows walk along the edges, Enter opens and closes a module" });
  const frame = make("div", { class: "picture graph" }, canvas);
  const told = make("output");
  const shapes = data.graph.shape;
  let scene = null;
  let view = { x: 0, y: 0, scale: 1 };
  let waiting = false;

  const work = quantityOf("macs") && tree.total.macs[0] ? "macs" : "flops";
  const families = Array.from({ length: ops.count }, (_, row) => familyOfOperator(row));
  const legend = familyLegend(families);

  function readOpened() {
    opened.clear();
    if (state.graph) for (const text of state.graph.split(".")) opened.add(parseInt(text, 36));
    else {
      // A model that is one box inside another is opened until there is something to see.
      opened.add(0);
      let boxes = [0];
      for (;;) {
        const closed = boxes.filter((node) => !opened.has(node) && tree.children[node].length);
        if (boxesOf() >= 3 || !closed.length) break;
        closed.forEach((node) => opened.add(node));
        boxes = closed.flatMap((node) => tree.children[node]);
        if (!boxes.length) break;
      }
    }
  }

  function boxesOf() {
    return new Set(Array.from({ length: ops.count }, (_, row) => boxOf(ops.module[row]) ?? `#${row}`)).size;
  }

  // The closed module that an operator is hidden in; null where all around it is open.
  function boxOf(module) {
    let found = null;
    for (let at = module; at >= 0; at = at === 0 ? -1 : tree.parent[at]) if (!opened.has(at)) found = at;
    return found;
  }

  function build() {
    const boxes = new Map();
    const nodes = [];
    const nodeOf = new Int32Array(ops.count);
    const known = new Map();
    for (let row = 0; row < ops.count; row += 1) {
      const module = ops.module[row];
      if (!known.has(module)) known.set(module, boxOf(module));
      const box = known.get(module);
      const name = box === null ? `#${row}` : box;
      if (!boxes.has(name)) {
        boxes.set(name, nodes.length);
        nodes.push(box === null ? operatorNode(row) : moduleNode(box));
      }
      nodeOf[row] = boxes.get(name);
    }
    const found = new Map();
    data.graph.from.forEach((from, place) => {
      const [a, b] = [nodeOf[from], nodeOf[data.graph.to[place]]];
      if (a === b) return;
      // A module that is called again reads what was made after its first call: such an edge goes back up.
      const edge = `${a} ${b}`;
      const shape = shapes.words[shapes.at[place]];
      if (!found.has(edge)) found.set(edge, { from: a, to: b, shapes: new Set() });
      found.get(edge).shapes.add(shape);
    });
    const edges = [...found.values()];
    const ahead = edges.filter((edge) => edge.from < edge.to);
    const back = edges.filter((edge) => edge.from > edge.to);
    roomForTitles(nodes);
    const layout = layered(nodes, ahead.map((edge) => [edge.from, edge.to]));
    nodes.forEach((node, place) => Object.assign(node, { x: layout.x[place], y: layout.y[place] }));
    ahead.forEach((edge, place) => { edge.bends = layout.bends[place]; });
    scene = { nodes, edges: ahead, back, layout, groups: groupsOf(nodes), byLayer: [...nodes.keys()].sort((a, b) => nodes[a].y - nodes[b].y || nodes[a].x - nodes[b].x) };
    told.textContent = `${nodes.length.toLocaleString("en-US")} boxes for ${ops.count.toLocaleString("en-US")} operators`;
  }

  // Above the first box of every opened module stands its title.
  function roomForTitles(nodes) {
    const begun = new Set([0]);
    for (const node of nodes) {
      let count = 0;
      for (let at = node.opens ? tree.parent[node.module] : node.module; at > 0 && !begun.has(at); at = tree.parent[at]) {
        begun.add(at);
        count += 1;
      }
      node.titles = Math.max(0, count - 1) * TITLE;
    }
  }

  function moduleNode(node) {
    const title = node ? tree.path[node].slice(prefixOf(node).length) : tree.name(0);
    const sum = tree.total[work][node];
    return { module: node, title, note: `${tree.type(node)} · ${formatAs("count", sum)}`, share: sum / (tree.total[work][0] || 1), opens: true, width: wide(title, `${tree.type(node)} · ${formatAs("count", sum)}`) };
  }

  // A path is told from where the reader is: without what all opened boxes around it have in common.
  const prefixOf = (node) => (tree.parent[node] ? `${tree.path[tree.parent[node]]}.` : "");

  function operatorNode(row) {
    const title = ops.of.raw(row);
    const note = ops.of.outs(row) || ops.of.ins(row);
    return { row, module: ops.module[row], title, note, share: 0, opens: false, family: families[row], width: wide(title, note) };
  }

  const wide = (...texts) => Math.min(230, Math.max(70, ...texts.map((text) => 18 + LETTER * text.length)));

  // Around the boxes of an opened module stands a frame that closes it.
  function groupsOf(nodes) {
    const frames = new Map();
    for (const node of nodes) {
      const from = node.opens ? tree.parent[node.module] : node.module;
      for (let at = from; at > 0; at = tree.parent[at]) {
        const room = frames.get(at) ?? { module: at, left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
        room.left = Math.min(room.left, node.x - node.width / 2);
        room.right = Math.max(room.right, node.x + node.width / 2);
        room.top = Math.min(room.top, node.y);
        room.bottom = Math.max(room.bottom, node.y + 40);
        frames.set(at, room);
      }
    }
    // A frame is drawn around those in it.
    const ordered = [...frames.values()].sort((a, b) => tree.depth[a.module] - tree.depth[b.module]);
    const outside = new Map();
    for (const { module } of [...ordered].reverse()) {
      const around = tree.parent[module];
      outside.set(around, Math.max(outside.get(around) ?? 0, (outside.get(module) ?? 0) + 1));
    }
    return ordered.map((room) => {
      const outer = outside.get(room.module) ?? 0;
      const pad = 7 + 4 * outer;
      const title = TITLE * (outer + 1) + 3;
      return { module: room.module, x: room.left - pad, y: room.top - title, w: room.right - room.left + 2 * pad, h: room.bottom - room.top + title + pad };
    });
  }

  function fit() {
    const wideEnough = frame.clientWidth - 40;
    const highEnough = (frame.clientHeight - 60) / scene.layout.depth;
    const scale = Math.min(1, Math.max(0.12, wideEnough / Math.max(200, scene.layout.width)), Math.max(0.6, highEnough));
    view = { scale, x: 20 + Math.max(0, (wideEnough - scene.layout.width * scale) / 2), y: 34 };
    later();
  }

  function fitWhole() {
    const { width, depth } = scene.layout;
    const scale = Math.min(1, (frame.clientWidth - 40) / Math.max(1, width), (frame.clientHeight - 60) / Math.max(1, depth));
    view = { scale, x: (frame.clientWidth - width * scale) / 2, y: 34 };
  }

  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  }

  const isChosen = (node) => {
    const at = chosenNode();
    if (at < 0) return false;
    if (chosenOperator() >= 0) return node.opens ? isWithin(at, node.module) : node.row === chosenOperator();
    return node.opens ? isWithin(at, node.module) || (at > 0 && isWithin(node.module, at)) : at > 0 && isWithin(node.module, at);
  };

  function paint() {
    if (!frame.offsetParent) return;
    if (!scene) {
      build();
      if (matchMedia("print").matches) fitWhole();
      else fit();
    }
    const [width, height, dots] = [frame.clientWidth, frame.clientHeight, devicePixelRatio || 1];
    if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
      canvas.width = Math.round(width * dots);
      canvas.height = Math.round(height * dots);
    }
    const pen = canvas.getContext("2d");
    const look = getComputedStyle(document.documentElement);
    const ink = Object.fromEntries(["ground", "raised", "text", "faint", "line", "strong", "chosen", "edge"].map((name) => [name, look.getPropertyValue(`--${name}`).trim()]));
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.fillStyle = ink.ground;
    pen.fillRect(0, 0, width, height);
    pen.setTransform(dots * view.scale, 0, 0, dots * view.scale, dots * view.x, dots * view.y);
    const seen = { left: -view.x / view.scale, top: -view.y / view.scale, right: (width - view.x) / view.scale, bottom: (height - view.y) / view.scale };
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const room of scene.groups) if (room.y < seen.bottom && room.y + room.h > seen.top) paintGroup(pen, ink, room);
    for (const edge of scene.edges) if (edge.bends[0][1] < seen.bottom && edge.bends.at(-1)[1] > seen.top) paintEdge(pen, ink, edge);
    for (const edge of scene.back) paintBack(pen, ink, edge);
    for (const node of scene.nodes) if (node.y < seen.bottom && node.y + 40 > seen.top) paintNode(pen, ink, node);
    if (view.scale > 0.55) for (const edge of scene.edges) if (edge.bends[0][1] < seen.bottom && edge.bends.at(-1)[1] > seen.top) paintShape(pen, ink, edge);
  }

  function paintGroup(pen, ink, room) {
    pen.fillStyle = ink.raised;
    pen.globalAlpha = 0.55;
    pen.fillRect(room.x, room.y, room.w, room.h);
    pen.globalAlpha = 1;
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    pen.strokeRect(room.x, room.y, room.w, room.h);
    pen.fillStyle = ink.faint;
    pen.fillText(`− ${tree.path[room.module]}`, room.x + 4, room.y + 8);
  }

  function paintEdge(pen, ink, edge) {
    const lit = isChosen(scene.nodes[edge.from]) && isChosen(scene.nodes[edge.to]);
    pen.strokeStyle = lit ? ink.edge : ink.faint;
    pen.globalAlpha = lit ? 1 : 0.6;
    pen.lineWidth = (lit ? 1.8 : 1) / Math.max(0.5, view.scale);
    pen.beginPath();
    const points = edge.bends.map(([x, y], place) => [x, place === 0 ? y + 40 : place === edge.bends.length - 1 ? y : y + 20]);
    pen.moveTo(...points[0]);
    for (let at = 1; at < points.length; at += 1) {
      const middle = (points[at - 1][1] + points[at][1]) / 2;
      pen.bezierCurveTo(points[at - 1][0], middle, points[at][0], middle, ...points[at]);
    }
    pen.stroke();
    const [x, y] = points.at(-1);
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x - 3.5, y - 6);
    pen.lineTo(x + 3.5, y - 6);
    pen.fill();
    pen.globalAlpha = 1;
  }

  function paintBack(pen, ink, edge) {
    const [a, b] = [scene.nodes[edge.from], scene.nodes[edge.to]];
    const side = Math.max(a.x + a.width / 2, b.x + b.width / 2) + 24;
    pen.strokeStyle = ink.strong;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(a.x + a.width / 2, a.y + 20);
    pen.bezierCurveTo(side, a.y + 20, side, b.y + 20, b.x + b.width / 2, b.y + 20);
    pen.stroke();
    pen.setLineDash([]);
  }

  function paintShape(pen, ink, edge) {
    const [first, ...others] = edge.shapes;
    if (!first) return;
    const text = others.length ? `${first} +${others.length}` : first;
    const [x, y] = edge.bends.length > 2 ? [edge.bends[1][0], edge.bends[1][1] - 8] : [(edge.bends[0][0] + edge.bends[1][0]) / 2, (edge.bends[0][1] + 40 + edge.bends[1][1]) / 2];
    const room = pen.measureText(text).width;
    pen.fillStyle = ink.ground;
    pen.globalAlpha = 0.85;
    pen.fillRect(x - room / 2 - 2, y - 7, room + 4, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = ink.faint;
    pen.fillText(text, x - room / 2, y);
  }

  function paintNode(pen, ink, node) {
    const chosen = isChosen(node);
    const left = node.x - node.width / 2;
    pen.fillStyle = chosen ? ink.chosen : node.opens ? ink.raised : ink.ground;
    pen.strokeStyle = chosen ? ink.edge : ink.faint;
    pen.lineWidth = chosen ? 2 : 1;
    pen.beginPath();
    pen.roundRect(left, node.y, node.width, 40, node.opens ? 3 : 9);
    pen.fill();
    pen.stroke();
    if (view.scale < 0.25) return;
    if (node.opens && node.share > 0) {
      pen.fillStyle = ink.strong;
      pen.globalAlpha = 0.75;
      pen.fillRect(left + 1, node.y + 36, Math.max(1, (node.width - 2) * node.share), 3);
      pen.globalAlpha = 1;
    } else if (!node.opens) {
      pen.fillStyle = colourOf(node.family);
      pen.fillRect(left + 4, node.y + 8, 4, 24);
    }
    const room = Math.floor((node.width - 14) / 5.6);
    const cut = (text) => (text.length > room ? `${text.slice(0, room - 1)}…` : text);
    pen.fillStyle = ink.text;
    pen.fillText(cut(node.opens ? `+ ${node.title}` : node.title), left + (node.opens ? 6 : 12), node.y + 13);
    pen.fillStyle = ink.faint;
    pen.fillText(cut(node.note), left + (node.opens ? 6 : 12), node.y + 27);
  }

  // -- what the reader does -------------------------------------------------------------------------------------------

  const placeOf = (event) => {
    const room = canvas.getBoundingClientRect();
    return [(event.clientX - room.left - view.x) / view.scale, (event.clientY - room.top - view.y) / view.scale];
  };
  const nodeAt = (x, y) => scene?.nodes.find((node) => Math.abs(node.x - x) <= node.width / 2 && y >= node.y && y <= node.y + 40);
  const groupAt = (x, y) => [...(scene?.groups ?? [])].reverse().find((room) => x >= room.x && x <= room.x + 150 && y >= room.y && y <= room.y + 15);

  function keepOpened() {
    if (opened.size <= MOST_KEPT) setState({ graph: [...opened].map((node) => node.toString(36)).join(".") || "-" });
  }

  // What was looked at stays where it is on the screen.
  function toggle(module) {
    const before = centreOf(module);
    if (opened.has(module)) for (const node of [...opened]) { if (node && isWithin(node, module)) opened.delete(node); }
    else opened.add(module);
    build();
    const after = centreOf(module);
    if (before && after) view = { ...view, x: view.x + (before[0] - after[0]) * view.scale, y: view.y + (before[1] - after[1]) * view.scale };
    keepOpened();
    announce(`${tree.name(module)} ${opened.has(module) ? "opened" : "closed"}, ${scene.nodes.length} boxes`);
    later();
  }

  function centreOf(module) {
    const inside = scene.nodes.filter((node) => isWithin(node.module, module) || node.module === module);
    return inside.length ? [inside.reduce((sum, node) => sum + node.x, 0) / inside.length, Math.min(...inside.map((node) => node.y))] : null;
  }

  const select = (node) => (node.opens ? choose(node.module) : chooseOperator(node.row));

  function lookAt(node) {
    const [x, y] = [node.x * view.scale + view.x, node.y * view.scale + view.y];
    if (x < 60 || x > frame.clientWidth - 60) view.x += frame.clientWidth / 2 - x;
    if (y < 40 || y > frame.clientHeight - 60) view.y += frame.clientHeight / 2 - y;
  }

  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      held.moved ||= Math.hypot(dx, dy) > 4;
      if (held.moved) {
        view = { ...view, x: held.from.x + dx, y: held.from.y + dy };
        later();
      }
      return;
    }
    const node = nodeAt(...placeOf(event));
    if (!node) hideTip();
    else if (node.opens) showTip(event, [...detailLines(node.module), `${formatShare(node.share)} of the work; click + to open`]);
    else showTip(event, [node.title, tree.path[node.module] || tree.name(0), `in ${ops.of.ins(node.row)}`, `out ${ops.of.outs(node.row)}`]);
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = held?.moved;
    held = null;
    if (moved) return;
    const [x, y] = placeOf(event);
    const node = nodeAt(x, y);
    const room = node ? null : groupAt(x, y);
    hideTip();
    if (room) toggle(room.module);
    else if (node?.opens && (x < node.x - node.width / 2 + 18 || chosenNode() === node.module)) toggle(node.module);
    else if (node) select(node);
  });
  canvas.addEventListener("pointerleave", hideTip);
  const zoom = (factor, x = frame.clientWidth / 2, y = frame.clientHeight / 2) => {
    const scale = Math.min(3, Math.max(0.03, view.scale * factor));
    view = { scale, x: x - ((x - view.x) / view.scale) * scale, y: y - ((y - view.y) / view.scale) * scale };
    later();
  };
  canvas.addEventListener("wheel", (event) => {
    const room = canvas.getBoundingClientRect();
    if (event.shiftKey) view = { ...view, x: view.x - event.deltaY };
    else zoom(Math.exp(-event.deltaY / 500), event.clientX - room.left, event.clientY - room.top);
    later();
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const at = scene.nodes.find(isChosen) ?? scene.nodes[0];
    const place = scene.nodes.indexOf(at);
    const along = (edges, mine, other) => scene.nodes[edges.find((edge) => edge[mine] === place)?.[other]];
    const beside = (by) => scene.nodes[scene.byLayer[scene.byLayer.indexOf(place) + by]];
    const moves = {
      ArrowDown: () => along(scene.edges, "from", "to") ?? beside(1), ArrowUp: () => along(scene.edges, "to", "from") ?? beside(-1),
      ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
    };
    if (moves[event.key]) {
      const next = moves[event.key]();
      if (next) {
        select(next);
        lookAt(next);
        later();
      }
    } else if (event.key === "Enter") toggle(at.module);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else return;
    event.preventDefault();
  });

  const deeper = () => {
    for (const node of scene.nodes.filter((one) => one.opens)) opened.add(node.module);
    build();
    fit();
    keepOpened();
  };
  const closeAll = () => {
    setState({ graph: "" });
    readOpened();
    build();
    fit();
  };
  const button = (title, act) => make("button", { type: "button", class: "plain", text: title, on: { click: act } });
  whenChanged((names) => {
    if (names.has("graph") && state.graph && state.graph !== [...opened].map((node) => node.toString(36)).join(".")) {
      readOpened();
      scene = null;
    }
    if (names.has("sel") && scene) {
      const node = scene.nodes.find(isChosen);
      if (node) lookAt(node);
    }
    if (["graph", "sel", "view", "theme"].some((name) => names.has(name))) later();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
  readOpened();
  new ResizeObserver(later).observe(frame);
  // On paper nothing moves, so all of it is shown.
  let kept = null;
  addEventListener("beforeprint", () => {
    kept = view;
    if (scene) fitWhole();
    paint();
  });
  addEventListener("afterprint", () => {
    if (kept) view = kept;
    kept = null;
    later();
  });
  return make("section", { class: "view", "aria-label": "Graph" },
    make("div", { class: "tools" }, button("open a level", deeper), button("close all", closeAll), button("fit", fit), button("+", () => zoom(1.25)), button("−", () => zoom(0.8)), told),
    frame, legend);
}
