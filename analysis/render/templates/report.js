// Tables sort and filter. Without this script the page says the same.
(() => {
  const FEW = 6; // rows that one sees at a glance need no filter
  const order = new Intl.Collator("en", { numeric: true });

  const text = (cell) => cell.textContent.trim();

  /** What a cell is sorted by: its number, its text, or null where it is undefined. */
  function key(cell, isNumber) {
    if (cell.dataset.key !== undefined) return Number(cell.dataset.key);
    return isNumber || cell.dataset.none !== undefined || !text(cell) ? null : text(cell);
  }

  function compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return a - b;
    return order.compare(String(a), String(b));
  }

  /** Rows by one column; undefined ones stay last, equal ones keep their order. */
  function sort(table, at, isDown) {
    const body = table.tBodies[0];
    const isNumber = table.tHead.rows[0].cells[at].classList.contains("number");
    const rows = [...body.rows].map((row) => ({ row, key: key(row.cells[at], isNumber) }));
    rows.sort((a, b) => {
      const isEither = a.key === null || b.key === null;
      return isDown && !isEither ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    body.append(...rows.map((one) => one.row));
    [...table.tHead.rows[0].cells].forEach((head, number) => {
      if (number === at) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function addButtons(table) {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      const words = document.createElement("span"); // one, so that the words of a head wrap
      words.append(...head.childNodes);
      button.append(words);
      button.addEventListener("click", () => {
        sort(table, at, head.getAttribute("aria-sort") === "ascending");
      });
      head.append(button);
    });
  }

  function addFilter(table) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < FEW) return;
    const words = rows.map((row) => row.textContent.toLowerCase());
    const tools = document.createElement("div");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    tools.className = "tools";
    label.append("Filter rows ", input);
    input.type = "search";
    input.autocomplete = "off";
    input.setAttribute("aria-label", "Filter rows of: " + text(table.caption));
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, number) => {
        row.hidden = !wanted.every((word) => words[number].includes(word));
        shown += !row.hidden;
      });
      count.textContent = wanted.length ? shown + " of " + rows.length + " rows" : "";
    });
    tools.append(label, count);
    table.closest(".frame").before(tools);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    addFilter(table); // before the buttons, so that what is searched is what is written
    addButtons(table);
  }

  /** A word beside a box beyond whose edges there is more. */
  function addCue(frame) {
    const cue = document.createElement("p");
    cue.className = "cue";
    cue.textContent = "There is more to the right: scroll sideways.";
    frame.after(cue);
    watchEdges(frame, (isWider) => { cue.hidden = !isWider; });
  }

  document.querySelectorAll(".frame").forEach(addCue);

  /** A link into a folded table opens it. */
  function unfold() {
    const place = document.getElementById(location.hash.slice(1)); // ids are letters, digits, dots and hyphens
    for (let one = place && place.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();

  // On a narrow screen the contents are long: folded until somebody asks.
  if (matchMedia("(max-width: 76rem)").matches) document.querySelector("nav details").open = false;
})();
