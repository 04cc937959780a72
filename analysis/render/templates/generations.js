// A browser of answers. Whatever comes from logs reaches the page as text of a node, never as markup.
(() => {
  const ROW = 28; // pixels, as in the style sheet
  const TALLEST = 8e6; // pixels; browsers draw nothing beyond some 16 million
  const LONGEST = 200; // characters of an answer in the list; more of it stands beside the question
  const MOST = 10_000; // characters of a text that are shown at all: a browser takes minutes to lay out a megabyte
  const AROUND = 12; // rows drawn above and below those in sight
  const FULL = "full";
  const FILTERS = ["suite", "model", "task", "arm", "condition", "budget", "outcome"];
  const ANY_FAILURE = "any failure";
  const LOOKS = { correct: "good", rescued: "good", "induced failure": "bad", "inherent failure": "mid", failure: "mid", unknown: "quiet" };
  const SIGNS = { correct: "\u2713", rescued: "\u2713", "induced failure": "\u2717", "inherent failure": "\u2717", failure: "\u2717", unknown: "?" };
  const $ = (id) => document.getElementById(id);
  let data, count, questionOf, valueOf;
  let found = []; // rows that pass the filters
  let active = 0; // place in `found`
  let chosen = -1; // row whose question is shown

  async function unpack() {
    const packed = atob($("data").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  /** Characters that are invisible or turn the reading direction, as escapes. */
  function plain(whole, keepsLines) {
    const rest = whole.length - MOST;
    const text = rest > 0 ? whole.slice(0, MOST) + " [and " + rest.toLocaleString("en") + " more characters]" : whole;
    return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (sign) => {
      if (sign === "\n") return keepsLines ? sign : "\\n";
      const code = sign.codePointAt(0);
      return code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
    });
  }

  function make(tag, text, className) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  const told = (value) => (value === null ? "-" : String(value));
  const percent = (share) => (share === null ? "-" : Number((100 * share).toPrecision(4)) + " %");
  const signed = (word) => SIGNS[word] + " " + word.replace(" failure", "");
  const outcome = (row) => data.outcomes[data.rows.outcome[row]];

  /** What each filter compares, by row. */
  function values() {
    const question = (name) => (row) => data.questions[name][questionOf[row]];
    const place = (at) => (row) => told(data.places[data.rows.place[row]][at]);
    return {
      suite: question("suite"), model: question("model"), task: question("task"),
      arm: place(0), condition: place(1), budget: (row) => percent(data.places[data.rows.place[row]][2]), outcome,
    };
  }

  function fillFilters() {
    for (const name of FILTERS) {
      const select = $(name);
      const known = name in data.names ? data.names[name]
        : name === "outcome" ? [ANY_FAILURE, ...data.outcomes.filter((_, at) => data.rows.outcome.includes(at))]
        : name === "budget" ? [...new Set(data.places.map((place) => place[2]))].sort((a, b) => a - b).map(percent)
        : [...new Set(data.places.map((place) => told(place[{ arm: 0, condition: 1 }[name]])))].sort();
      select.append(new Option("all", ""));
      for (const value of known) select.append(new Option(plain(value), value));
    }
  }

  // Each text in small letters, made at the first search.
  let lower;

  /** Rows that pass; a text is looked for in the answer, question, references and example id. */
  function filter() {
    const wanted = FILTERS.filter((name) => $(name).value !== "").map((name) => [valueOf[name], $(name).value]);
    const text = $("text").value.toLowerCase();
    let hasText = () => true;
    if (text) {
      lower ??= data.texts.map((one) => one.toLowerCase());
      const hits = Uint8Array.from(lower, (one) => one.includes(text));
      const questions = data.questions.example_id.map((id, at) =>
        id.toLowerCase().includes(text) || [data.questions.question[at], ...data.questions.references[at]].some((n) => n !== null && hits[n]));
      hasText = (row) => hits[data.rows.text[row]] || questions[questionOf[row]];
    }
    found = [];
    for (let row = 0; row < count; row++) {
      if (wanted.every(([value, is]) => value(row) === is || (is === ANY_FAILURE && value(row).endsWith("failure"))) && hasText(row)) found.push(row);
    }
    active = Math.max(0, found.indexOf(chosen));
    $("count").textContent = found.length.toLocaleString("en") + " of " + count.toLocaleString("en");
    $("list").setAttribute("aria-rowcount", found.length + 1);
    $("window").style.height = Math.min(found.length * ROW, TALLEST) + "px";
    draw();
  }

  // Beyond TALLEST pixels a pixel of the scroll bar stands for more than one of the list.
  const height = () => $("list").clientHeight - ROW;
  const scale = () => {
    const whole = found.length * ROW, drawn = Math.min(whole, TALLEST);
    return drawn > height() ? (whole - height()) / (drawn - height()) : 1;
  };

  function draw() {
    const list = $("list"), top = list.scrollTop * scale();
    const first = Math.max(0, Math.floor(top / ROW) - AROUND);
    const last = Math.min(found.length, Math.ceil((top + height()) / ROW) + AROUND);
    const rows = [];
    for (let at = first; at < last; at++) rows.push(line(at));
    $("rows").replaceChildren(...rows);
    $("rows").style.transform = "translateY(" + (first * ROW - top + list.scrollTop) + "px)";
    const shown = $("row-" + active);
    if (shown) list.setAttribute("aria-activedescendant", shown.id);
    else list.removeAttribute("aria-activedescendant");
  }

  const HEADS = ["outcome", "answer", "arm", "cond.", "budget", "task", "example", "suite", "model"];

  function line(at) {
    const row = found[at], question = questionOf[row];
    const [arm, condition, budget] = data.places[data.rows.place[row]];
    const element = make("div", undefined, "row" + (at === active ? " active" : ""));
    const word = outcome(row);
    const cells = [
      [signed(word), LOOKS[word]], [data.texts[data.rows.text[row]].slice(0, LONGEST)], [arm], [told(condition)], [percent(budget), "number"],
      ...["task", "example_id", "suite", "model"].map((name) => [data.questions[name][question]]),
    ];
    for (const [text, className] of cells) {
      const cell = make("div", plain(text), className);
      cell.setAttribute("role", "gridcell");
      element.append(cell);
    }
    element.id = "row-" + at;
    element.setAttribute("role", "row");
    element.setAttribute("aria-rowindex", at + 2);
    element.setAttribute("aria-selected", row === chosen);
    element.addEventListener("click", () => { active = at; choose(); });
    return element;
  }

  function move(to) {
    active = Math.max(0, Math.min(found.length - 1, to));
    const list = $("list"), top = list.scrollTop * scale();
    if (active * ROW < top) list.scrollTop = (active * ROW) / scale();
    else if ((active + 1) * ROW > top + height()) list.scrollTop = ((active + 1) * ROW - height()) / scale();
    draw();
  }

  /** The list is lower once a question stands below it. */
  function keepInSight() {
    const at = found.indexOf(chosen);
    if (at >= 0) move(at);
  }

  function choose() {
    if (!found.length) return;
    chosen = found[active];
    history.replaceState(null, "", "#" + chosen);
    draw();
    show(chosen);
  }

  function fact(list, name, text) {
    list.append(make("dt", name), make("dd", text));
  }

  /** An arm with its condition, budget and seed, as far as it has them. */
  function placed([arm, condition, budget, seed]) {
    const rest = [condition, budget === null ? null : percent(budget), seed === null ? null : "seed " + seed];
    return [arm, ...rest.filter((part) => part !== null)].join(" \u00b7 ");
  }

  /** The question of a row, and what every arm answered to it. */
  function show(row) {
    const question = questionOf[row], asked = data.questions;
    const detail = $("detail"), facts = make("dl");
    const head = [asked.suite, asked.model, asked.task, asked.example_id].map((column) => plain(column[question]));
    fact(facts, "question", asked.question[question] === null ? "not among the examples" : plain(data.texts[asked.question[question]], true));
    fact(facts, "references", asked.references[question].map((n) => plain(data.texts[n], true)).join("\n") || "none known");
    fact(facts, "context", asked.context[question].toLocaleString("en") + " tokens");
    fact(facts, "chosen", plain(placed(data.places[data.rows.place[row]])));
    fact(facts, "answer", SIGNS[outcome(row)] + " " + outcome(row) + ": " + plain(data.texts[data.rows.text[row]], true));
    const signals = ["score", ...data.signals].map((name) => name.replace("_", " ") + " " + told(data.rows[name][row]));
    fact(facts, "signals", signals.join(", "));
    const box = make("div", undefined, "scroll");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Answers of all arms");
    box.append(answers(question, row));
    const frame = make("div", undefined, "frame"), back = make("button", "Back to the list", "back");
    frame.append(box);
    back.type = "button";
    back.addEventListener("click", () => { $("list").scrollIntoView(); $("list").focus(); });
    detail.replaceChildren(back, make("h2", head.join(" \u00b7 ")), facts, frame);
    watchEdges(frame);
    document.querySelector(".panes").classList.add("open");
    keepInSight();
    detail.scrollTop = 0;
    // Below the list on a narrow page, where nothing else would show that a row was chosen.
    if (matchMedia("(max-width: 62rem)").matches) detail.scrollIntoView();
  }

  function answers(question, row) {
    const table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    table.createCaption().textContent = "Answers of all arms; score: " + data.score_names[question];
    const names = ["arm", "condition", "budget", "seed", "outcome", "answer", "score", ...data.signals.map((name) => name.replace("_", " ")), "kept", "of", "tokens"];
    const isNumber = (at) => at === 2 || at === 3 || at > 5;
    names.forEach((name, at) => {
      const cell = make("th", name, isNumber(at) ? "number" : "");
      cell.scope = "col";
      head.append(cell);
    });
    for (let at = data.questions.start[question]; at < data.questions.start[question + 1]; at++) {
      const line = body.insertRow(), word = outcome(at);
      const [arm, condition, budget, seed] = data.places[data.rows.place[at]];
      if (at === row) line.className = "chosen";
      const first = make("th", plain(arm));
      first.scope = "row";
      line.append(first, make("td", told(condition)), make("td", percent(budget), "number"), make("td", told(seed), "number"));
      line.append(make("td", signed(word), "outcome " + LOOKS[word]), make("td", plain(data.texts[data.rows.text[at]], true), "answer"));
      line.append(make("td", told(data.rows.score[at]), "number"));
      for (const name of data.signals) {
        const cell = make("td", told(data.rows[name][at]), "number");
        const why = data.why[data.rows.why[at]][name];
        if (why) cell.title = plain("undefined: " + why);
        line.append(cell);
      }
      for (const name of ["kept", "evictable", "tokens"]) line.append(make("td", told(data.rows[name][at]), "number"));
    }
    return table;
  }

  function listen() {
    const list = $("list");
    let waiting = 0;
    list.addEventListener("scroll", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(draw);
    });
    list.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.floor(height() / ROW) - 1);
      const steps = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: found.length - 1 };
      if (event.key in steps) move(steps[event.key]);
      else if (event.key === "Enter" || event.key === " ") choose();
      else return;
      event.preventDefault();
    });
    const again = () => { list.scrollTop = 0; filter(); };
    let typing = 0;
    $("text").addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(again, 60);
    });
    for (const name of FILTERS) $(name).addEventListener("change", again);
    $("filters").addEventListener("reset", () => setTimeout(again));
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("resize", draw);
    watchEdges(list.parentElement);
    addEventListener("hashchange", follow);
  }

  /** A link to a row shows it. */
  function follow() {
    const row = Number(location.hash.slice(1));
    if (location.hash.length < 2 || !(row >= 0 && row < count)) return;
    chosen = row;
    const at = found.indexOf(row);
    if (at >= 0) move(at);
    show(row);
  }

  async function start() {
    data = await unpack();
    count = data.rows.place.length;
    questionOf = new Int32Array(count);
    data.questions.start.forEach((first, question, starts) => questionOf.fill(question, first, starts[question + 1] ?? count));
    valueOf = values();
    for (const name of HEADS) {
      const head = make("div", name, name === "budget" ? "number" : "");
      head.setAttribute("role", "columnheader");
      document.querySelector(".heads").append(head);
    }
    fillFilters();
    $("filters").hidden = false;
    listen();
    filter();
    follow();
    document.documentElement.dataset.ready = Math.round(performance.now());
  }

  start().catch((error) => {
    $("broken").hidden = false;
    $("broken").textContent = "The answers cannot be shown: " + error.message;
  });
})();
