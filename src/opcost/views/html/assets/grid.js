// A table that draws only the lines in sight, however many there are; also a tree, if its owner tells levels.

import { announce, copyText, make } from "./dom.js";
import { formatAmount, formatAs } from "./format.js";

export const LINE = 24;
const MARGIN = 8;
const MOST_PRINTED = 3000;
const SAMPLE = 200;
// A sheet is so wide, and its letters are so much smaller.
const PAPER = 715;
const SMALLER = 10 / 13;
const INDENT = 14;
const ROOM = {
  name: { least: 120, most: 340 }, text: { least: 60, most: 230 }, shapes: { least: 90, most: 230 }, number: { least: 56, most: 170 },
};

export function cellText(column, row) {
  const value = column.of(row);
  if (Array.isArray(value)) return formatAmount(value);
  const text = formatAs(column.unit, value);
  return column.mark ? column.mark(row, text) : text;
}

export function sortValue(column, row) {
  const value = column.of(row);
  const plain = Array.isArray(value) ? value[0] : value;
  return plain === "" ? null : plain;
}

export const isTextual = (column) => ["name", "text", "shapes"].includes(column.unit);

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

// `owner` may tell: all rows that there can be, level(row), opened(row) -> true, false or null, toggle(row), select(row), isChosen(row), roleOf(row), sort(name).
export class Grid {
  constructor(label, columns, owner = {}) {
    this.label = label;
    this.columns = columns;
    this.owner = owner;
    this.rows = [];
    this.first = -1;
    this.lines = [];
    this.above = spacer(columns.length);
    this.below = spacer(columns.length);
    this.body = make("tbody", {}, this.above, this.below);
    this.heads = columns.map((column) => this.head(column));
    this.table = make(
      "table",
      { role: owner.level ? "treegrid" : "grid", "aria-label": label, "aria-colcount": columns.length },
      (this.cols = make("colgroup", {}, ...columns.map(() => make("col")))),
      make("thead", {}, make("tr", { role: "row" }, ...this.heads)),
      this.body,
    );
    this.element = make("div", { class: "grid", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` }, this.table);
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw(true)).observe(this.element);
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
  }

  head(column) {
    const button = make("button", { type: "button", text: column.title, title: column.remark ?? column.title });
    button.addEventListener("click", () => this.owner.sort?.(column.name));
    return make("th", { scope: "col", role: "columnheader", class: isTextual(column) ? "text" : "" }, button);
  }

  retitle(name, title) {
    const place = this.columns.findIndex((column) => column.name === name);
    this.heads[place].firstChild.textContent = title;
  }

  markSort(name, rising) {
    this.columns.forEach((column, place) => {
      if (column.name === name) this.heads[place].setAttribute("aria-sort", rising ? "ascending" : "descending");
      else this.heads[place].removeAttribute("aria-sort");
    });
  }

  show(rows) {
    this.rows = rows;
    if (!this.measured && rows.length) this.measure();
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.draw(true);
  }

  // Columns are as wide as what a sample of their lines and their titles need, and stay so.
  measure() {
    this.measured = true;
    const some = (rows) => rows.filter((_, place) => place % Math.max(1, Math.floor(rows.length / SAMPLE)) === 0);
    const seen = some(this.rows);
    const all = this.owner.all ? some(this.owner.all) : seen;
    const pen = document.createElement("canvas").getContext("2d");
    const { fontFamily, fontSize } = getComputedStyle(document.body);
    const wide = (text, weight) => {
      pen.font = `${weight} ${fontSize} ${fontFamily}`;
      return pen.measureText(text).width;
    };
    const widths = this.columns.map((column, index) => {
      const { least, most } = ROOM[column.unit] ?? ROOM.number;
      const indent = (row) => (index === 0 && this.owner.level ? INDENT * (this.owner.level(row) + 1) : 0);
      const needs = (row) => indent(row) + wide(cellText(column, row), this.owner.roleOf?.(row) === "total" ? 600 : 400);
      // Names of lines that are not opened yet may be long without end; what else they tell is short.
      const room = 18 + (index ? all : seen).reduce((most, row) => Math.max(most, needs(row)), wide(`${column.title} ▲`, 600));
      return Math.round(Math.max(column.least ?? least, Math.min(column.most ?? most, room)));
    });
    this.widths = widths;
    let left = PAPER / SMALLER;
    this.fitting = widths.map((width) => (left -= width) >= 0);
    this.spread(1);
  }

  spread(scale) {
    this.widths.forEach((width, place) => { this.cols.children[place].style.width = `${width * scale}px`; });
    this.table.style.minWidth = scale < 1 ? "0" : `${this.widths.reduce((sum, width) => sum + width, 0)}px`;
  }

  // Columns to the right that a sheet of paper has no room for are left out on it, and named.
  leaveOut(begins) {
    if (!this.measured) return;
    this.spread(begins ? SMALLER : 1);
    const lacking = this.columns.filter((_, place) => !this.fitting[place]);
    if (!lacking.length) return;
    const rows = [this.cols, this.heads[0].parentNode, ...this.lines];
    for (const row of rows) this.fitting.forEach((fits, place) => { row.children[place].hidden = begins && !fits; });
    if (begins) this.element.after((this.remark = make("p", { class: "faint", text: `not on paper: ${lacking.map((column) => column.title).join(", ")}` })));
    else this.remark?.remove();
  }

  reveal(row) {
    const place = this.rows.indexOf(row);
    if (place < 0) return;
    const top = place * LINE;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top > scrollTop + clientHeight - 3 * LINE) this.element.scrollTop = top - clientHeight / 3;
    this.draw(true);
  }

  draw(anew = false) {
    if (this.printing) return;
    const room = Math.ceil((this.element.clientHeight || 600) / LINE) + 2 * MARGIN;
    const first = Math.max(0, Math.min(Math.floor(this.element.scrollTop / LINE) - MARGIN, this.rows.length - room));
    if (!anew && Math.abs(first - this.first) < MARGIN / 2) return;
    this.first = first;
    const held = this.body.contains(document.activeElement);
    const end = Math.min(this.rows.length, first + room);
    this.lay(first, end);
    if (held) this.body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
  }

  // On paper nothing scrolls, so all lines are laid, and stay while the paper is measured.
  print(begins) {
    this.printing = begins;
    if (begins) this.lay(0, Math.min(this.rows.length, MOST_PRINTED));
    this.leaveOut(begins);
    if (!begins) this.draw(true);
  }

  // Lines are elements that are filled anew, since to make them takes longer.
  lay(first, end) {
    // One line can be reached with the tabulator: what is chosen, or else the first in sight.
    let reachable = Math.min(Math.ceil(this.element.scrollTop / LINE), end - 1);
    for (let place = first; place < end; place += 1) if (this.owner.isChosen?.(this.rows[place])) reachable = place;
    const count = Math.max(0, end - first);
    if (this.lines.length !== count) {
      while (this.lines.length < count) this.lines.push(this.blank());
      this.lines.length = count;
      this.body.replaceChildren(this.above, ...this.lines, this.below);
    }
    space(this.above, first);
    space(this.below, this.rows.length - end);
    this.lines.forEach((line, at) => this.fill(line, this.rows[first + at], first + at, reachable));
  }

  blank() {
    return make("tr", { role: "row" }, ...this.columns.map((column, index) => make("td", { role: index ? "gridcell" : "rowheader" },
      index === 0 && this.owner.level ? make("span", { class: "fold", "aria-hidden": "true" }) : null, "")));
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
      const value = column.of(row);
      const change = Array.isArray(value) && value[3] ? (value[0] > 0 ? " more" : value[0] < 0 ? " less" : " same") : "";
      put(cell, "class", classOf(column) + change);
      put(cell, "title", text.length > 14 ? text : null);
      if (index === 0 && owner.level) {
        cell.style.paddingLeft = `${6 + INDENT * owner.level(row)}px`;
        cell.firstChild.textContent = opened === null ? "" : opened ? "▾" : "▸";
      }
      if (column.part) cell.style.backgroundSize = `${(100 * Math.max(0, Math.min(1, column.part(row) || 0))).toFixed(2)}% 100%`;
      if (cell.lastChild.data !== text) cell.lastChild.data = text;
    });
  }

  click(event) {
    const line = event.target.closest("tr[data-place]");
    if (!line) return;
    const row = this.rows[Number(line.dataset.place)];
    if (event.target.classList.contains("fold")) this.owner.toggle?.(row);
    else this.choose(row);
  }

  choose(row) {
    this.owner.select?.(row);
    this.draw(true);
    this.body.querySelector('tr[aria-selected="true"]')?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const line = event.target.closest?.("tr[data-place]") ?? this.body.querySelector('tr[tabindex="0"]');
    if (!line || !this.owner.select) return;
    const place = Number(line.dataset.place);
    const row = this.rows[place];
    const page = Math.max(1, Math.floor(this.element.clientHeight / LINE) - 2);
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

  markdown() {
    const tame = (text) => text.replace(/[\\`*_[\]<>&|~#]/g, (found) => (found === "<" ? "&lt;" : `\\${found}`)).replace(/\s/g, " ");
    const indent = (row, place) => (place === 0 && this.owner.level ? "\u00a0\u00a0".repeat(this.owner.level(row)) : "");
    const lines = [
      this.columns.map((column) => tame(titleOf(this, column))),
      this.columns.map((column) => (isTextual(column) ? "---" : "---:")),
      ...this.rows.map((row) => this.columns.map((column, place) => indent(row, place) + tame(cellText(column, row)))),
    ];
    return lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
  }

  // Numbers as they are, in no unit but the smallest; a text that a spreadsheet would run as a formula is marked as text.
  csv() {
    const tame = (text) => (/^[\s'"`]*[=+\-@＝＋－＠]/.test(text) ? `'${text}` : text);
    const written = (value) => {
      const plain = Array.isArray(value) ? value[0] : value;
      if (plain === null || plain === undefined) return "";
      if (typeof plain === "number") return String(plain);
      return /[",\n\r]/.test(plain) ? `"${tame(plain).replaceAll('"', '""')}"` : tame(plain);
    };
    const lines = [
      this.columns.map((column) => written(column.title || column.name)),
      ...this.rows.map((row) => this.columns.map((column) => written(column.full ? column.full(row) : column.of(row)))),
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

function titleOf(grid, column) {
  return grid.heads[grid.columns.indexOf(column)].firstChild.textContent;
}

function classOf(column) {
  return `${isTextual(column) ? "text" : "number"}${column.part ? " bar" : ""}${column.name === "note" ? " flag" : ""}`;
}

function put(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// A line that stands for all those that are out of sight.
const spacer = (columns) => make("tr", { "aria-hidden": "true", class: "spacer" }, make("td", { colspan: columns, style: { padding: "0", border: "0" } }));

function space(line, count) {
  line.hidden = count <= 0;
  line.firstChild.style.height = `${Math.max(0, count) * LINE}px`;
}
