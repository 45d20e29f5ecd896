// A table that draws only the lines in sight, however many there are; also a tree, if its owner tells levels.

import { announce, copyText, make } from "./dom.js";
import { formatAmount, formatAs } from "./format.js";

export const LINE = 24;
const MARGIN = 8;
const MOST_PRINTED = 3000;

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

// `owner` may tell: level(row), opened(row) -> true, false or null, toggle(row), select(row), isChosen(row), roleOf(row), sort(name).
export class Grid {
  constructor(label, columns, owner = {}) {
    this.label = label;
    this.columns = columns;
    this.owner = owner;
    this.rows = [];
    this.first = -1;
    this.body = make("tbody");
    this.heads = columns.map((column) => this.head(column));
    this.table = make(
      "table",
      { role: owner.level ? "treegrid" : "grid", "aria-label": label, "aria-colcount": columns.length },
      make("colgroup", {}, ...columns.map((column) => make("col", { style: { width: widthOf(column) } }))),
      make("thead", {}, make("tr", { role: "row" }, ...this.heads)),
      this.body,
    );
    this.table.style.minWidth = `${columns.reduce((sum, column) => sum + parseInt(widthOf(column), 10), 0)}px`;
    this.element = make("div", { class: "grid", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` }, this.table);
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw(true)).observe(this.element);
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
  }

  head(column) {
    const button = make("button", { type: "button", text: column.title, title: column.remark });
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
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.draw(true);
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
    else this.draw(true);
  }

  lay(first, end) {
    const lines = [];
    if (first > 0) lines.push(spacer(first, this.columns.length));
    // One line can be reached with the tabulator: what is chosen, or else the first in sight.
    let reachable = Math.min(Math.ceil(this.element.scrollTop / LINE), end - 1);
    for (let place = first; place < end; place += 1) if (this.owner.isChosen?.(this.rows[place])) reachable = place;
    for (let place = first; place < end; place += 1) lines.push(this.line(this.rows[place], place, reachable));
    if (end < this.rows.length) lines.push(spacer(this.rows.length - end, this.columns.length));
    this.body.replaceChildren(...lines);
  }

  line(row, place, reachable) {
    const { owner } = this;
    const opened = owner.opened ? owner.opened(row) : null;
    const chosen = Boolean(owner.isChosen?.(row));
    const line = make("tr", {
      role: "row", "data-place": place, "aria-rowindex": place + 2, tabindex: place === reachable ? "0" : "-1",
      "aria-level": owner.level ? owner.level(row) + 1 : null, "aria-expanded": opened === null ? null : String(opened),
      "aria-selected": owner.select ? String(chosen) : null, class: owner.roleOf?.(row) || null,
    });
    this.columns.forEach((column, index) => {
      const cell = make("td", { role: index ? "gridcell" : "rowheader", class: classOf(column) });
      const text = cellText(column, row);
      if (index === 0 && owner.level) {
        cell.style.paddingLeft = `${6 + 14 * owner.level(row)}px`;
        const sign = opened === null ? "" : opened ? "▾" : "▸";
        cell.append(make("span", { class: "fold", "aria-hidden": "true", text: sign }));
      }
      if (column.part) {
        const part = Math.max(0, Math.min(1, column.part(row) || 0));
        cell.style.backgroundSize = `${(100 * part).toFixed(2)}% 100%`;
      }
      const value = column.of(row);
      if (Array.isArray(value) && value[3]) cell.classList.add(value[0] > 0 ? "more" : value[0] < 0 ? "less" : "same");
      cell.append(text);
      if (text.length > 14) cell.title = text;
      line.append(cell);
    });
    return line;
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

function widthOf(column) {
  return column.width ?? { name: "210px", text: "130px", shapes: "170px", "flop/s": "112px", "bytes/s": "104px" }[column.unit] ?? "92px";
}

function spacer(lines, columns) {
  const cell = make("td", { colspan: columns, style: { height: `${lines * LINE}px`, padding: "0", border: "0" } });
  return make("tr", { "aria-hidden": "true", class: "spacer" }, cell);
}
