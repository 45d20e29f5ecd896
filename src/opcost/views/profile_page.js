"use strict";
// Sorting by a column and filtering by words; without it the page is a plain table.
for (const section of document.querySelectorAll("section.answer")) {
  const bodies = [...section.querySelectorAll("tbody")];
  const heads = [...section.querySelectorAll("th")];
  const filter = section.querySelector("input");
  const told = section.querySelector("output");
  const rows = bodies.map((body) => [...body.querySelectorAll("tr.row")]);
  const words = new Map();
  for (const list of rows) for (const row of list) words.set(row, row.textContent.toLowerCase());

  const valueOf = (row, place) => {
    const raw = row.cells[place].dataset.v;
    if (raw === undefined) return row.cells[place].textContent.trim().toLowerCase() || null;
    return raw === "" ? null : Number(raw);
  };
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  const sortBy = (place, rising) => {
    rows.forEach((list, number) => {
      const keyed = list.map((row, order) => [valueOf(row, place), order, row]);
      keyed.sort((a, b) => {
        // What is missing comes last in both directions.
        if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null) || a[1] - b[1];
        return (rising ? 1 : -1) * compare(a[0], b[0]) || a[1] - b[1];
      });
      bodies[number].append(...keyed.map((entry) => entry[2]));
    });
    heads.forEach((head, other) => {
      if (other === place) head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  };

  heads.forEach((head, place) => {
    head.querySelector("button").addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      sortBy(place, now ? now === "descending" : head.classList.contains("text"));
    });
  });

  const show = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of words) {
      const fits = wanted.every((word) => text.includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    told.textContent = shown === words.size ? `${words.size} lines` : `${shown} of ${words.size} lines`;
  };
  let waiting = 0;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, 120);
  });
  show();
}
