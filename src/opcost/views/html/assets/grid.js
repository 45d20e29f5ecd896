// A table that draws only the lines in sight, however many there are; also a tree, if its owner tells levels.

import { announce, copyText, make } from "./dom.js";
import { formatAmount, formatAs } from "./format.js";
import { columnsThatFit, isTextual, needOf, Ruler, spreadColumns } from "./widths.js";

const LINE = 24;
// A line of a narrow screen: the name, and its most important numbers below it.
const TWO_LINES = 46;
const narrow = matchMedia("(max-width: 560px)");
const MARGIN = 8;
const MOST_PRINTED = 3000;
const SAMPLE = 200;
// A sheet is so wide, and its letters are so much smaller.
const PAPER = 715;
const SMALLER = 10 / 13;
const INDENT = 12;
const NARROW_INDENT = 8;
const FOLD = 14;
const DEEPEST = 6;
const GAP = 8;

export function cellText(column, row) {
  const value = column.of(row);
  if (Array.isArray(value)) return formatAmount(value);
  const text = formatAs(column.unit, value);
  return column.mark ? column.mark(row, text) : text;
}

function sortValue(column, row) {
  const value = column.of(row);
  const plain = Array.isArray(value) ? value[0] : value;
  return plain === "" ? null : plain;
}

// What is missing comes last in both directions; equal lines keep their order.
export function sortRows(rows, column, rising) {
  const keyed = rows.map((row, place) => [sortValue(column, row), place, row]);
  keyed.sort((a, b) => {
    if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null) || a[1] - b[1];
    const order = a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0;
    return (rising ? order : -order) || a[1] - b[1];
  });
  return keyed.map((entry) => entry[2]);
}

// A column may have: `part` (a bar), `mark` (its text changed), `rank` (shown while there is room), `brief` (its place below the
// name on a narrow screen), `beside` (no column, but this text after the name), `full` (the name in full),
// `isAlike` (as wide as all others that are), `isWide` (not on a narrow screen).
// `owner` may have: all rows that there can be, level(row), opened(row) -> true, false or null, toggle(row), select(row),
// isChosen(row), roleOf(row), run(row) -> { text, title, act } of a button beside the name, sort(name), columns() -> names or null,
// colour(row) of a square before the name of a line that does not open.
export class Grid {
  constructor(label, columns, owner = {}) {
    this.label = label;
    this.every = columns;
    this.owner = owner;
    this.rows = [];
    this.first = -1;
    this.hasFold = Boolean(owner.level || owner.colour);
    this.sorted = ["", false];
    this.needs = null;
    this.line = LINE;
    this.above = spacer(columns.length);
    this.below = spacer(columns.length);
    this.body = make("tbody", {}, this.above, this.below);
    this.table = make(
      "table",
      { role: owner.level ? "treegrid" : "grid", "aria-label": label },
      (this.cols = make("colgroup")),
      make("thead", {}, (this.head = make("tr", { role: "row" }))),
      this.body,
    );
    this.element = make("div", { class: "grid", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` }, this.table);
    this.ruler = new Ruler(this.element);
    this.display(columns.filter((column) => !column.beside));
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => {
      this.arrange();
      this.draw(true);
    }).observe(this.element);
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
  }

  // Shows these columns; lines are made anew.
  display(columns) {
    this.columns = columns;
    this.lines = [];
    this.cols.replaceChildren(...columns.map(() => make("col")));
    this.head.replaceChildren(...columns.map((column) => {
      const button = make("button", { type: "button", text: column.title, title: column.remark ?? column.title, "aria-label": column.title ? null : column.name });
      button.addEventListener("click", () => this.owner.sort?.(column.name));
      return make("th", { scope: "col", role: "columnheader", class: isTextual(column) ? "text" : "" }, button);
    }));
    this.table.setAttribute("aria-colcount", columns.length);
    this.markSort(...this.sorted);
  }

  retitle(name, title) {
    const column = this.every.find((one) => one.name === name);
    if (column.title === title) return;
    column.title = title;
    this.display(this.columns);
  }

  markSort(name, rising) {
    this.sorted = [name, rising];
    this.columns.forEach((column, place) => put(this.head.children[place], "aria-sort", column.name === name ? (rising ? "ascending" : "descending") : null));
  }

  show(rows) {
    this.rows = rows;
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    if (!this.needs) this.arrange();
    this.draw(true);
  }

  // -- columns --------------------------------------------------------------------------------------------------------

  // What the columns need for a sample of their lines; what is wider is seen when it is drawn.
  measure() {
    const some = (rows) => {
      const step = Math.max(1, Math.floor(rows.length / SAMPLE));
      return Array.from({ length: Math.ceil(rows.length / step) }, (_, place) => rows[place * step]);
    };
    const seen = some(this.rows);
    const all = this.owner.all ? some(this.owner.all) : seen;
    const titles = this.every.map((column) => [`${column.title} ▲`, true]);
    this.ruler.learn(titles);
    const titled = titles.map((title) => this.ruler.of(...title));
    // Names of lines that are not opened yet may be long without end; what else they have is short.
    this.needs = this.needed(this.every, (place) => (place ? all : seen), titled);
    // Bars of one scale are compared with each other.
    const alike = this.needs.filter((_, place) => this.every[place].isAlike);
    const widest = (name) => Math.max(...alike.map((need) => need[name]));
    const [least, whole] = [widest("least"), widest("whole")];
    for (const need of alike) Object.assign(need, { least, most: whole, whole });
  }

  needed(columns, rowsOf, titles) {
    const texts = columns.map((column, place) => rowsOf(place).map((row) => this.textsOf(column, row)));
    this.ruler.learn(texts.flat(2));
    const width = (parts) => parts.reduce((sum, [text, bold]) => sum + GAP + this.ruler.of(text, bold), -GAP);
    const besides = this.every.filter((column) => column.beside).length;
    return columns.map((column, place) => {
      const isName = column === this.every[0];
      const indents = rowsOf(place).map((row) => (isName ? this.indent(row) : 0));
      const widths = (parts) => texts[place].map((all, at) => indents[at] + width(parts(all)));
      return needOf(column, titles[place], widths((all) => all), widths((all) => all.slice(0, all.length - (isName ? besides : 0))));
    });
  }

  // The texts in a cell, bold or not: of the name, also those beside it.
  textsOf(column, row) {
    const value = column.of(row);
    const isDifference = Array.isArray(value) && value[3];
    const own = [cellText(column, row), isDifference || ["total", "group"].includes(this.owner.roleOf?.(row))];
    if (column !== this.every[0]) return [own];
    const run = this.owner.run?.(row);
    return [own, ...(run ? [[`${run.text}\u2003`, false]] : []), ...this.every.filter((one) => one.beside).map((one) => [one.beside(row), false])];
  }

  indent(row) {
    return (this.hasFold ? FOLD : 0) + (this.owner.level ? INDENT * this.owner.level(row) : 0);
  }

  // Which columns there is room for, and how wide they are.
  arrange() {
    if (this.printing || !this.rows.length || !this.element.offsetParent) return;
    if (!this.needs) this.measure();
    const chosen = this.owner.columns?.();
    const room = this.element.clientWidth;
    const own = this.every.filter((column, place) => !column.beside && (!chosen || !place || chosen.has(column.name)) && !(column.isWide && narrow.matches));
    const isBrief = narrow.matches && own.some((column) => column.brief);
    const columns = isBrief ? [own[0], ...own.filter((column) => column.brief).sort((a, b) => a.brief - b.brief)] : chosen ? own : columnsThatFit(own, this.needsOf(own), room);
    this.line = isBrief ? TWO_LINES : LINE;
    this.element.classList.toggle("brief", isBrief);
    if (columns.length !== this.columns.length || columns.some((column, place) => column !== this.columns[place])) this.display(columns);
    this.spread();
  }

  needsOf(columns) {
    return columns.map((column) => this.needs[this.every.indexOf(column)]);
  }

  spread(widths = spreadColumns(this.needsOf(this.columns), this.element.clientWidth)) {
    widths.forEach((width, place) => { this.cols.children[place].style.width = `${width}px`; });
    this.table.style.width = `${widths.reduce((sum, width) => sum + width, 0)}px`;
  }

  // Numbers are never cut: a column grows when one that is drawn needs more.
  widen(rows) {
    const columns = this.columns.filter((column, place) => !place || !isTextual(column));
    const needs = this.needed(columns, () => rows, columns.map(() => 0));
    const grown = columns.filter((column, place) => {
      const at = this.every.indexOf(column);
      if (needs[place].most <= this.needs[at].most) return false;
      this.needs[at] = needs[place];
      return true;
    });
    if (grown.length) this.arrange();
  }

  // Columns to the right that a sheet of paper has no room for are left out on it, and named.
  leaveOut(begins) {
    if (!begins) {
      this.remark?.remove();
      this.arrange();
      return;
    }
    if (!this.needs) return;
    const columns = this.columns;
    let left = PAPER / SMALLER;
    const fitting = columns.filter((_, place) => (left -= this.needsOf(columns)[place].most) >= 0);
    if (fitting.length < columns.length) {
      const lacking = columns.filter((column) => !fitting.includes(column)).map((column) => column.title);
      this.element.after((this.remark = make("p", { class: "faint", text: `not on paper: ${lacking.join(", ")}` })));
      this.display(fitting);
    }
    this.spread(this.needsOf(fitting).map((need) => need.most * SMALLER));
  }

  // -- lines ----------------------------------------------------------------------------------------------------------

  reveal(row) {
    const place = this.rows.indexOf(row);
    if (place < 0) return;
    const top = place * this.line;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top > scrollTop + clientHeight - 3 * this.line) this.element.scrollTop = top - clientHeight / 3;
    this.draw(true);
  }

  draw(anew = false) {
    if (this.printing) return;
    const room = Math.ceil((this.element.clientHeight || 600) / this.line) + 2 * MARGIN;
    const first = Math.max(0, Math.min(Math.floor(this.element.scrollTop / this.line) - MARGIN, this.rows.length - room));
    if (!anew && Math.abs(first - this.first) < MARGIN / 2) return;
    this.first = first;
    const hasFocus = this.body.contains(document.activeElement);
    const end = Math.min(this.rows.length, first + room);
    this.lay(first, end);
    if (hasFocus) this.body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
  }

  // On paper nothing scrolls, so all lines are laid, and stay while the paper is measured.
  print(begins) {
    const rows = this.rows.slice(0, MOST_PRINTED);
    if (begins && this.needs) this.widen(rows);
    this.printing = begins;
    this.leaveOut(begins);
    if (begins) this.lay(0, rows.length);
    else this.draw(true);
  }

  // Lines are elements that are filled anew, since to make them takes longer.
  lay(first, end) {
    const rows = this.rows.slice(first, end);
    if (this.needs && !this.printing) this.widen(rows);
    // One line can be reached with the tabulator: what is chosen, or else the first in sight.
    let reachable = Math.min(Math.ceil(this.element.scrollTop / this.line), end - 1);
    for (let place = first; place < end; place += 1) if (this.owner.isChosen?.(this.rows[place])) reachable = place;
    if (this.lines.length !== rows.length || !this.lines.length) {
      while (this.lines.length < rows.length) this.lines.push(this.blank());
      this.lines.length = rows.length;
      this.body.replaceChildren(this.above, ...this.lines, this.below);
    }
    space(this.above, first * this.line);
    space(this.below, (this.rows.length - end) * this.line);
    this.lines.forEach((line, at) => this.fill(line, rows[at], first + at, reachable));
  }

  blank() {
    const [name, ...others] = this.columns;
    const fold = this.hasFold ? make("span", { class: "fold", "aria-hidden": "true" }) : null;
    const run = this.owner.run ? make("button", { type: "button", class: "run" }) : null;
    const besides = this.every.filter((column) => column.beside).map(() => make("span", { class: "beside" }));
    return make("tr", { role: "row" },
      make("td", { role: "rowheader", class: classOf(name) }, fold, make("span", { class: "name" }), run, ...besides),
      ...others.map((column) => make("td", { role: "gridcell", "data-title": column.brief ? column.title : null }, "")));
  }

  fill(line, row, place, reachable) {
    const { owner } = this;
    const opened = owner.opened ? owner.opened(row) : null;
    put(line, "data-place", place);
    put(line, "aria-rowindex", place + 2);
    put(line, "tabindex", place === reachable ? "0" : "-1");
    put(line, "aria-level", owner.level ? owner.level(row) + 1 : null);
    put(line, "aria-expanded", opened === null ? null : String(opened));
    put(line, "aria-selected", owner.select ? String(Boolean(owner.isChosen?.(row))) : null);
    put(line, "class", owner.roleOf?.(row) || null);
    this.columns.forEach((column, index) => {
      const cell = line.children[index];
      const text = cellText(column, row);
      if (column.part) cell.style.backgroundSize = `${(100 * Math.max(0, Math.min(1, column.part(row) || 0))).toFixed(2)}% 100%`;
      if (!index) {
        this.fillName(line, row, text, opened, place === reachable);
        return;
      }
      put(cell, "class", `${classOf(column)} ${changeClass(column.of(row))}`.trim());
      put(cell, "title", isTextual(column) && text.length > 9 ? text : null);
      cell.hidden = this.line === TWO_LINES && text === "–";
      if (cell.lastChild.data !== text) cell.lastChild.data = text;
    });
  }

  fillName(line, row, text, opened, isReachable) {
    const { owner } = this;
    const cell = line.firstChild;
    const parts = [...cell.children];
    if (owner.level) {
      const level = owner.level(row);
      if (this.line === TWO_LINES) line.style.paddingLeft = `${FOLD + 6 + NARROW_INDENT * Math.min(level, DEEPEST)}px`;
      else cell.style.paddingLeft = `${6 + INDENT * level}px`;
    }
    if (this.hasFold) {
      const fold = parts.shift();
      const colour = opened === null ? owner.colour?.(row) : null;
      fold.textContent = opened === null ? "" : opened ? "▾" : "▸";
      fold.classList.toggle("square", Boolean(colour));
      fold.style.color = colour ?? "";
    }
    parts.shift().textContent = text;
    if (owner.run) {
      const run = owner.run(row);
      const button = parts.shift();
      button.hidden = !run;
      button.textContent = run?.text ?? "";
      put(button, "title", run?.title ?? null);
      put(button, "tabindex", isReachable ? "0" : "-1");
    }
    const besides = this.every.filter((column) => column.beside);
    parts.forEach((part, place) => { part.textContent = ` ${besides[place].beside(row)}`; });
    const [name] = this.columns;
    put(cell, "title", [name.full ? name.full(row) : text, ...besides.map((column) => column.beside(row))].filter(Boolean).join("  "));
  }

  click(event) {
    const line = event.target.closest("tr[data-place]");
    if (!line) return;
    const row = this.rows[Number(line.dataset.place)];
    if (event.target.classList.contains("fold") && (this.owner.opened?.(row) ?? null) !== null) this.owner.toggle(row);
    else if (event.target.classList.contains("run")) this.owner.run(row).act();
    else this.choose(row);
  }

  choose(row) {
    this.owner.select?.(row);
    this.draw(true);
    this.body.querySelector('tr[aria-selected="true"]')?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.target.tagName === "BUTTON" && [" ", "Enter"].includes(event.key))) return;
    const line = event.target.closest?.("tr[data-place]") ?? this.body.querySelector('tr[tabindex="0"]');
    if (!line || !this.owner.select) return;
    const place = Number(line.dataset.place);
    const row = this.rows[place];
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.line) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    if (event.key in moves) {
      const next = this.rows[Math.max(0, Math.min(this.rows.length - 1, place + moves[event.key]))];
      this.owner.select(next);
      this.reveal(next);
      this.body.querySelector('tr[aria-selected="true"]')?.focus({ preventScroll: true });
    } else if (event.key === "ArrowRight" && this.owner.opened?.(row) === false) this.owner.toggle(row);
    else if (event.key === "ArrowLeft" && this.owner.opened?.(row) === true) this.owner.toggle(row);
    else if (event.key === "Enter" || event.key === " ") this.owner.opened?.(row) === null ? this.choose(row) : this.owner.toggle?.(row);
    else return;
    event.preventDefault();
  }

  // -- as text --------------------------------------------------------------------------------------------------------

  // The columns that are shown.
  markdown() {
    const tame = (text) => text.replace(/[\\`*_[\]<>&|~#]/g, (found) => (found === "<" ? "&lt;" : `\\${found}`)).replace(/\s/g, " ");
    const indent = (row, place) => (place === 0 && this.owner.level ? "\u00a0\u00a0".repeat(this.owner.level(row)) : "");
    const columns = this.every.filter((column) => column.beside || this.columns.includes(column));
    const lines = [
      columns.map((column) => tame(column.title)),
      columns.map((column) => (isTextual(column) ? "---" : "---:")),
      ...this.rows.map((row) => columns.map((column, place) => indent(row, place) + tame(cellText(column, row)))),
    ];
    return lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
  }

  // All columns, numbers as they are, in no unit but the smallest; a text that a spreadsheet would run as a formula is marked as text.
  csv() {
    const tame = (text) => (/^[\s'"`]*[=+\-@＝＋－＠]/.test(text) ? `'${text}` : text);
    const written = (value) => {
      const plain = Array.isArray(value) ? value[0] : value;
      if (plain === null || plain === undefined) return "";
      if (typeof plain === "number") return String(plain);
      return /[",\n\r]/.test(plain) ? `"${tame(plain).replaceAll('"', '""')}"` : tame(plain);
    };
    const lines = [
      this.every.map((column) => written(column.title || column.name)),
      ...this.rows.map((row) => this.every.map((column) => written(column.full ? column.full(row) : column.of(row)))),
    ];
    return lines.map((cells) => `${cells.join(",")}\n`).join("");
  }

  copyButtons() {
    const button = (title, write) =>
      make("button", {
        type: "button", class: "plain", text: title, "aria-label": `Copy ${this.label} as ${title}`,
        on: {
          click: async (event) => {
            await copyText(write());
            announce(`${this.rows.length} lines copied as ${title}`);
            event.target.textContent = "copied";
            setTimeout(() => { event.target.textContent = title; }, 1200);
          },
        },
      });
    return make("span", { class: "copy" }, button("Markdown", () => this.markdown()), button("CSV", () => this.csv()));
  }
}

// Of a difference, whether it is more or less.
export function changeClass(value) {
  if (!Array.isArray(value) || !value[3]) return "";
  return value[0] > 0 ? "more" : value[0] < 0 ? "less" : "";
}

function classOf(column) {
  return `${isTextual(column) ? "text" : "number"}${column.part ? " bar" : ""}${column.name === "note" ? " flag" : ""}`;
}

function put(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// A line in place of all those that are out of sight.
const spacer = (columns) => make("tr", { "aria-hidden": "true", class: "spacer" }, make("td", { colspan: columns, style: { padding: "0", border: "0" } }));

function space(line, height) {
  line.hidden = height <= 0;
  line.firstChild.style.height = `${Math.max(0, height)}px`;
}
