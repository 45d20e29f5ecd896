// Modules, operators and the tensors between them as a drawing in which boxes open; hits, filters and the choice as everywhere.

import { colourOf, familyLegend } from "./colours.js";
import { data, isWithin, ops, quantityOf, tree } from "./data.js";
import { announce, draw, hideTip, make, showTip } from "./dom.js";
import { model, sceneOf } from "./flow.js";
import { formatAs, formatShare } from "./format.js";
import { arrange } from "./layers.js";
import { detailLines } from "./modules.js";
import { isHit } from "./search.js";
import { choose, chosenNode, chosenOperator, chooseOperator } from "./selection.js";
import { choicesOf, fold, foldAll, shown, SHOWN_STATE, unfold } from "./shown.js";
import { finished, sliced } from "./slices.js";
import { setState, state, whenChanged } from "./state.js";

const FONT = "11px system-ui, sans-serif";
const MOST_KEPT = 400;
const MOST_OPENING = 30;
const MOST_DRAWN = 1000;
// What is opened at first is written at least at this scale, unless it is next to nothing.
const LEGIBLE = 0.62;
const FEW = 8;
const HIGH = 24;
const WIDEST = 260;
// Below this scale nothing is written.
const FAR = 0.3;
const MARGIN = 10;

export function graphPanel() {
  const picture = draw("svg", { class: "flow", role: "group", tabindex: "0", "aria-label": "Graph of modules and operators; arrows walk along the tensors, Enter opens and closes, u unfolds and merges repeated blocks, plus and minus zoom, 0 fits" });
  const frame = make("div", { class: "picture graph" }, picture);
  const output = make("output", { role: "status" });
  const pen = document.createElement("canvas").getContext("2d");
  const work = quantityOf("macs") && tree.total.macs[0] ? "macs" : "flops";
  let found = null;
  let scene = null;
  let layer = null;
  let opened = new Set();
  let view = { x: 0, y: 0, scale: 1 };
  let job = 0;

  // -- what is opened ---------------------------------------------------------------------------------------------------

  const openedState = () => (opened.size <= MOST_KEPT ? { graph: [...opened].join(".") || "-" } : {});
  const keepOpened = () => setState(openedState());

  // Level by level, as long as there are few boxes and all of it is legible.
  function* opening() {
    const shownNow = new Set();
    let laid = yield* laidOut(shownNow);
    let count = laid.boxes.length;
    let level = laid.root.children;
    while (level.length) {
      const next = [];
      for (const box of [...level].filter((one) => one.below && one.kind !== "part" && (one.kind !== "phase" || one.title === "forward")).sort((a, b) => b.share - a.share)) {
        const inside = box.below();
        if (count + inside.length > MOST_OPENING + 1) continue;
        shownNow.add(box.id);
        const tried = yield* laidOut(shownNow);
        const isSmall = scaleOf(tried.root) < (count < FEW ? FAR : LEGIBLE) && tried.root.height > laid.root.height;
        if (isSmall) shownNow.delete(box.id);
        else {
          laid = tried;
          count = tried.boxes.length;
          next.push(...inside);
        }
      }
      level = next;
    }
    return shownNow;
  }

  // -- boxes and their places ---------------------------------------------------------------------------------------------

  function* laidOut(names) {
    const made = yield* sceneOf(found, names, sized, labelWidth);
    yield* arrange(made.root);
    const walk = [made.root];
    Object.assign(made.root, { left: 0, top: 0 });
    while (walk.length) {
      const box = walk.pop();
      for (const child of box.children) {
        child.left = box.left + child.x - child.width / 2;
        child.top = box.top + child.y;
        if (child.children) walk.push(child);
      }
    }
    return made;
  }

  const widths = new Map();
  const widthOf = (text) => {
    if (!widths.has(text)) {
      pen.font = FONT;
      widths.set(text, pen.measureText(text).width);
    }
    return widths.get(text);
  };
  const labelWidth = (text) => widthOf(text) + 6;

  function sized(box) {
    box.note = noteOf(box);
    box.mark = box.times > 1 ? `${box.times} ×` : "";
    const marks = (box.below ? 16 : 0) + (box.mark ? widthOf(box.mark) + 14 : 0);
    const room = 20 + marks + widthOf(box.title) + (box.note ? widthOf(box.note) + 8 : 0);
    box.least = box.width = Math.max(54, Math.min(WIDEST, room));
    box.height = HIGH;
  }

  function noteOf(box) {
    if (box.kind === "operator" || box.kind === "end") return "";
    const type = box.times > 1 ? tree.type(box.module) : box.type === box.title ? "" : box.type;
    return [type, box.work ? formatAs("count", box.work) : ""].filter(Boolean).join(" · ");
  }

  // -- drawing ------------------------------------------------------------------------------------------------------------

  async function show(after = fit) {
    const own = (job += 1);
    const isStale = () => own !== job;
    if (!frame.offsetParent) return;
    output.textContent = "laying out…";
    if (!found) {
      const made = await sliced(model(work), isStale);
      if (isStale()) return;
      found = made;
    }
    if (state.graph) opened = new Set(state.graph.split("."));
    else {
      const names = await sliced(opening(), isStale);
      if (isStale()) return;
      opened = names;
    }
    const laid = await sliced(laidOut(opened), isStale);
    if (isStale()) return;
    const made = await sliced(drawn(laid), isStale);
    if (isStale()) return;
    put(laid, made);
    after();
  }

  function put(laid, made) {
    scene = laid;
    layer = made;
    picture.replaceChildren(layer);
    const boxes = laid.boxes.length - 1;
    output.textContent = `${boxes.toLocaleString("en-US")} boxes`;
    light();
  }

  // Boxes and lines; texts only where they are read.
  function* drawn(laid) {
    const [frames, lines, closed, labels] = Array.from({ length: 4 }, () => draw("g", {}));
    laid.details = [];
    for (const box of laid.boxes) {
      if (box.parent) {
        (box.children ? frames : closed).append((box.element = shapeOf(box)));
        laid.details.push({ ...box, high: HIGH, write: () => box.element.append(...textsOf(box)) });
      }
      for (const line of box.lines ?? []) {
        const at = (x, y) => [round(box.left + x), round(box.top + y)];
        // What comes in behind the title begins below it.
        for (const piece of line.pieces) if (piece[1] === 0 && box.parent && piece[0] < box.least) piece[1] = Math.min(piece[2], HIGH - 7);
        lines.append(draw("path", { class: line.back ? "line back" : "line", d: line.pieces.map((piece) => curve(piece, at)).join("") }));
        const heads = line.ends.filter((end) => !end.inside).map(({ x, y }) => `M${at(x, y).join(" ")}l-3.5 -6.5h7z`).join("");
        if (heads) lines.append(draw("path", { class: "head", d: heads }));
        if (!line.from || !line.net.label) continue;
        const [x, y] = at(line.from.x, line.from.y);
        laid.details.push({ left: x - line.net.label / 2, width: line.net.label, top: y, high: 14, write: () => labels.append(draw("text", { class: "label", x, y: y + 13, text: line.net.net.text })) });
      }
      yield;
    }
    const all = draw("g", {});
    all.append(frames, lines, closed, labels);
    return all;
  }

  // Writes what has come into sight.
  function write() {
    if (!scene || view.scale < FAR) return;
    const [left, top, right, bottom] = [-view.x / view.scale, -view.y / view.scale, (frame.clientWidth - view.x) / view.scale, (frame.clientHeight - view.y) / view.scale];
    scene.details = scene.details.filter((one) => {
      if (one.left > right || one.left + one.width < left || one.top > bottom || one.top + one.high < top) return true;
      one.write();
      return false;
    });
  }

  const round = (number) => Math.round(number * 10) / 10;

  // Straight down past its own layer, a curve to the next one, and straight down to where it ends.
  function curve([x, y0, y1, other, y2, y3], at) {
    const [[a, begin], [, bend], [b, straight], [, end]] = [at(x, y0), at(x, y1), at(other, y2), at(other, y3)];
    if (Math.abs(a - b) < 0.2) return `M${a} ${begin}V${end}`;
    const middle = round((bend + straight) / 2);
    return `M${a} ${begin}V${bend}C${a} ${middle} ${b} ${middle} ${b} ${straight}V${end}`;
  }

  function shapeOf(box) {
    const [x, y] = [round(box.left), round(box.top)];
    const group = draw("g", { class: `box of-${box.kind}${box.children ? " open" : ""}`, "data-place": box.place },
      draw("rect", { class: "shape", x, y, width: round(box.width), height: round(box.height), rx: { end: HIGH / 2, operator: 8 }[box.kind] ?? 3 }));
    if (box.children || box.kind === "end") return group;
    if (box.family) group.append(draw("rect", { x: x + 4, y: y + 5, width: 4, height: HIGH - 10, rx: 1, fill: colourOf(box.family) }));
    if (box.share > 0) group.append(draw("rect", { class: "share", x: x + 1, y: y + HIGH - 3, width: round(Math.max(1, (box.width - 2) * Math.min(1, box.share))), height: 2 }));
    return group;
  }

  function textsOf(box) {
    const [x, y] = [round(box.left), round(box.top + HIGH / 2 + 4)];
    if (box.kind === "end") return [draw("text", { class: "title", x: round(x + box.width / 2), y, text: cut(box.title, box.width - 16) })];
    const texts = [];
    let at = x + 12;
    if (box.below) {
      texts.push(draw("text", { class: "sign", x: at, y, text: box.children ? "−" : "+" }));
      at += 14;
    }
    const end = x + box.width - 8;
    const title = cut(box.title, end - at - (box.mark ? widthOf(box.mark) + 14 : 0));
    texts.push(draw("text", { class: "title", x: at, y, text: title }));
    at += widthOf(title) + 8;
    if (box.mark) {
      const wide = widthOf(box.mark) + 8;
      texts.push(draw("g", { class: "run" }, draw("rect", { x: at - 2, y: y - 11, width: wide, height: HIGH - 10, rx: 3 }), draw("text", { x: at + 2, y, text: box.mark })));
      at += wide + 6;
    }
    const note = cut(box.note, end - at);
    if (note.length > 2) texts.push(draw("text", { class: "note", x: at, y, text: note }));
    return texts;
  }

  function cut(text, room) {
    if (widthOf(text) <= room + 1) return text;
    let letters = Math.floor((text.length * room) / widthOf(text));
    while (letters > 0 && widthOf(`${text.slice(0, letters)}…`) > room) letters -= 1;
    return letters > 0 ? `${text.slice(0, letters)}…` : "";
  }

  // What is chosen, found and filtered is marked on what is drawn.
  function light() {
    if (!scene) return;
    const now = shown();
    for (const box of scene.boxes) {
      if (!box.element) continue;
      const dim = box.kind === "operator" ? !now.shows(box.row) : box.module >= 0 && now.isEmpty(box.module);
      const hit = Boolean(state.q) && box.kind !== "operator" && hasHit(box);
      box.element.classList.toggle("chosen", isChosen(box));
      box.element.classList.toggle("hit", hit);
      box.element.classList.toggle("dim", dim || (Boolean(state.q) && !box.children && !hit && !isBelowHit(box)));
    }
  }

  const hasHit = (box) => (box.kind === "module" || box.kind === "phase") && box.module >= 0 && (box.children ? isHit(box.module) : belowOf(box.module).some(isHit));

  function belowOf(node) {
    const all = [node];
    for (let at = 0; at < all.length; at += 1) all.push(...shown().children(all[at]));
    return all;
  }

  function isBelowHit(box) {
    for (let at = box.module; at > 0; at = tree.parent[at]) if (isHit(at)) return true;
    return false;
  }

  const isChosen = (box) => {
    const at = chosenNode() < 0 ? -1 : shown().rep[chosenNode()];
    if (at < 0 || box.kind === "end" || box.kind === "phase") return false;
    if (box.kind === "operator") return chosenOperator() >= 0 ? found.twin[chosenOperator()] === box.row : at === box.module && at > 0;
    if (box.kind === "part") return false;
    if (box.children) return at === box.module && chosenOperator() < 0;
    return isWithin(at, box.from);
  };

  // -- what is seen of it -------------------------------------------------------------------------------------------------

  const scaleOf = (root) => Math.min(1, (frame.clientWidth - 2 * MARGIN) / Math.max(1, root.width), (frame.clientHeight - 2 * MARGIN) / Math.max(1, root.height));

  function fit() {
    if (!scene) return;
    const scale = scaleOf(scene.root);
    view = { scale, x: (frame.clientWidth - scene.root.width * scale) / 2, y: Math.max(MARGIN, (frame.clientHeight - scene.root.height * scale) / 2) };
    move();
  }

  function move() {
    layer?.setAttribute("transform", `translate(${round(view.x)} ${round(view.y)}) scale(${view.scale.toFixed(4)})`);
    picture.classList.toggle("far", view.scale < FAR);
    write();
  }

  function zoom(factor, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
    const scale = Math.min(3, Math.max(0.02, view.scale * factor));
    view = { scale, x: x - ((x - view.x) / view.scale) * scale, y: y - ((y - view.y) / view.scale) * scale };
    move();
  }

  function lookAt(box) {
    const [x, y] = [(box.left + box.width / 2) * view.scale + view.x, box.top * view.scale + view.y];
    if (x < 60 || x > frame.clientWidth - 60) view.x += frame.clientWidth / 2 - x;
    if (y < 20 || y > frame.clientHeight - 40) view.y += frame.clientHeight / 3 - y;
    move();
  }

  // -- what the reader does -----------------------------------------------------------------------------------------------

  // What was looked at stays where it is on the screen.
  function toggle(box) {
    if (!box?.below || !box.parent) return;
    const isOpen = opened.has(box.id);
    if (isOpen) opened.delete(box.id);
    else opened.add(box.id);
    keepOpened();
    const [left, top] = [box.left + box.width / 2, box.top];
    show(() => {
      const same = scene.boxes.find((one) => one.id === box.id && one.kind === box.kind);
      if (!same) return fit();
      view = { ...view, x: view.x + (left - same.left - same.width / 2) * view.scale, y: view.y + (top - same.top) * view.scale };
      announce(`${box.title} ${isOpen ? "closed" : "opened"}, ${scene.boxes.length - 1} boxes`);
      return move();
    });
  }

  // The module that has only these blocks, and is not shown as long as they are one, is opened with them.
  function unfoldBox(box) {
    opened.add(box.around);
    keepOpened();
    unfold(box.module);
  }

  const select = (box) => {
    if (box.kind === "operator") chooseOperator(box.row);
    else if (box.module >= 0) choose(box.module);
    else announce(`${box.title} ${box.shape ?? ""}`);
  };

  const boxOf = (event) => scene?.boxes[Number(event.target.closest?.("g.box")?.dataset.place)];
  let held = null;
  picture.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false };
  });
  picture.addEventListener("pointermove", (event) => {
    if (held) {
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.moved && Math.hypot(dx, dy) > 4) {
        held.moved = true;
        picture.setPointerCapture(event.pointerId);
      }
      if (held.moved) {
        view = { ...view, x: held.from.x + dx, y: held.from.y + dy };
        move();
      }
      return;
    }
    const box = boxOf(event);
    if (!box) hideTip();
    else showTip(event, tipOf(box));
  });
  picture.addEventListener("pointerup", () => { setTimeout(() => { held = null; }); });
  picture.addEventListener("pointercancel", () => { held = null; });
  picture.addEventListener("pointerleave", hideTip);
  picture.addEventListener("click", (event) => {
    const box = boxOf(event);
    if (held?.moved || !box) return;
    hideTip();
    if (event.target.closest(".run")) unfoldBox(box);
    else if (event.target.closest(".sign")) toggle(box);
    else select(box);
  });
  picture.addEventListener("dblclick", (event) => toggle(boxOf(event)));
  picture.addEventListener("wheel", (event) => {
    const room = picture.getBoundingClientRect();
    if (event.shiftKey) {
      view = { ...view, x: view.x - event.deltaY };
      move();
    } else zoom(Math.exp(-event.deltaY / 500), event.clientX - room.left, event.clientY - room.top);
    event.preventDefault();
  }, { passive: false });

  function tipOf(box) {
    if (box.kind === "end") return [box.title, data.graph.ends[box.end].shape];
    if (box.kind === "part") return [box.title, box.type];
    if (box.kind === "operator") return [ops.of.raw(box.row), tree.path[box.module] || tree.name(0), `in ${ops.of.ins(box.row)}`, `out ${ops.of.outs(box.row)}`];
    return [...detailLines(box.module), `${formatShare(box.share)} of the work`];
  }

  let current = null;
  picture.addEventListener("keydown", (event) => {
    if (!scene) return;
    const boxes = scene.boxes.slice(1);
    const at = (current && boxes.find((box) => box.id === current)) ?? boxes.find(isChosen) ?? boxes[0];
    const beside = (by) => {
      const row = boxes.filter((box) => box.parent === at.parent).sort((a, b) => a.top - b.top || a.left - b.left);
      return row[row.indexOf(at) + by];
    };
    const along = (down) => neighbours(at, down)[0] ?? beside(down ? 1 : -1) ?? (down ? null : at.parent);
    const go = (box) => {
      if (!box?.parent) return;
      current = box.id;
      select(box);
      lookAt(box);
    };
    const acts = {
      ArrowDown: () => go(along(true)), ArrowUp: () => go(along(false)), ArrowRight: () => go(beside(1)), ArrowLeft: () => go(beside(-1)),
      Enter: () => toggle(at), u: () => (shown().isRun(at.module) ? unfoldBox(at) : fold(at.module)),
      "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fit,
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    acts[event.key]();
    event.preventDefault();
  });

  // The boxes beside this one that read what it makes, or make what it reads.
  function neighbours(box, down) {
    const { children, nets } = box.parent;
    const at = children.indexOf(box);
    const places = down ? nets.filter((net) => net.source === at).flatMap((net) => net.targets) : nets.filter((net) => net.targets.includes(at) && net.source >= 0).map((net) => net.source);
    return [...new Set(places)].sort((a, b) => Math.abs(a - at) - Math.abs(b - at)).map((place) => children[place]);
  }

  const deeper = () => {
    const closed = scene?.boxes.filter((box) => box.below && !box.children) ?? [];
    let count = scene?.boxes.length ?? 0;
    for (const box of closed) {
      count += box.below().length;
      if (count > MOST_DRAWN) {
        announce(`opened as far as ${MOST_DRAWN.toLocaleString("en-US")} boxes`);
        break;
      }
      opened.add(box.id);
    }
    keepOpened();
    show();
  };
  const again = () => {
    setState({ graph: "" });
    show();
  };
  const button = (text, act, label = null) => make("button", { type: "button", class: "plain", text, "aria-label": label, on: { click: act } });
  const views = make("input", { type: "checkbox", on: { change: () => setState({ ...openedState(), aliases: views.checked ? "yes" : "" }) } });
  const merge = button("merge repeated blocks", foldAll);
  const settle = () => {
    views.checked = state.aliases === "yes";
    merge.hidden = !state.unfold;
  };
  whenChanged((names) => {
    settle();
    if (["unfold", "phase", "aliases"].some((name) => names.has(name))) {
      found = null;
      show();
    } else if (names.has("graph") && state.graph !== [...opened].join(".") && (state.graph || scene)) show();
    else if (names.has("view") && !scene) show();
    else if (["sel", "q", ...SHOWN_STATE].some((name) => names.has(name))) {
      light();
      const box = names.has("sel") && scene?.boxes.slice(1).filter(isChosen).at(-1);
      if (box) {
        current = box.id;
        lookAt(box);
      }
    }
  });
  new ResizeObserver(() => (scene ? null : show())).observe(frame);
  // On paper nothing moves, so all of it is shown.
  addEventListener("beforeprint", () => {
    if (!scene) {
      job += 1;
      found ??= finished(model(work));
      opened = finished(opening());
      const laid = finished(laidOut(opened));
      put(laid, finished(drawn(laid)));
    }
    fit();
  });
  addEventListener("afterprint", fit);
  settle();
  return make("section", { class: "view", "aria-label": "Graph" },
    make("div", { class: "tools" }, button("open a level", deeper), button("close all", again), button("fit", fit), button("+", () => zoom(1.25), "zoom in"), button("−", () => zoom(0.8), "zoom out"),
      make("label", { title: "reshape, permute, slice and others whose results share memory" }, views, " views"), merge, output),
    frame, familyLegend(choicesOf("kind")));
}
