// Runs as the body of a function of Gradio's: `props.value` is what tree_of() made. Everything is written as text.

const { make } = window.camapp;
const root = element.querySelector(".tree");
const body = root.querySelector("tbody");
const search = root.querySelector(".tree-search");
const ARROW = '<svg viewBox="0 0 12 12" aria-hidden="true"><path d="M4 2l4 4-4 4" fill="none" stroke="currentColor" stroke-width="1.8"/></svg>';

// Containers of so few parts are open at first, at the top of the tree.
const FEW = 16;

let rows = []; // {one, line, above, at}: the data of a row, its element, the row it hangs under, its place among its siblings
let open = new Set(); // names of the open ones
let model = null;

function build(value) {
  const above = [];
  rows = value.rows.map((one) => {
    above.length = one.depth - 1;
    const row = { one, above: above.at(-1) ?? null };
    above.push(row);
    row.line = line(one);
    return row;
  });
  const siblings = Map.groupBy ? Map.groupBy(rows, (row) => row.above) : grouped(rows);
  for (const group of siblings.values()) {
    group.forEach((row, at) => {
      row.line.setAttribute("aria-posinset", at + 1);
      row.line.setAttribute("aria-setsize", group.length);
    });
  }
  body.replaceChildren(...rows.map((row) => row.line));
  if (value.title !== model) open = new Set(rows.filter(({ one }) => one.depth === 1 && one.parts <= FEW).map(({ one }) => one.name));
  model = value.title;
}

function grouped(all) {
  const found = new Map();
  for (const row of all) found.set(row.above, [...(found.get(row.above) ?? []), row]);
  return found;
}

function line(one) {
  const name = make("span", { class: "tree-name", style: `--level: ${one.depth - 1}` });
  if (one.parts) {
    const twist = make("span", { class: "tree-twist", "aria-hidden": "true" });
    twist.innerHTML = ARROW; // no data in it
    name.append(twist);
  } else {
    name.append(make("span", { class: "tree-twist", "aria-hidden": "true" }));
  }
  name.append(make("span", { class: "tree-label", title: one.name }, one.short));
  if (one.calls > 1) name.append(make("span", { class: "tree-badge" }, `runs ${one.calls} times`));
  if (one.recommended) name.append(make("span", { class: "tree-badge" }, "recommended"));
  const bar = make("span", { class: "tree-bar", title: one.macs });
  bar.append(make("span", {}, one.compute));
  const share = make("i", { "aria-hidden": "true" });
  share.style.setProperty("--share", `${Math.min(100, one.share * 100).toFixed(2)}%`);
  if (one.compute) bar.append(share);
  const cell = (text, style) => make("td", { role: "gridcell", class: style }, text);
  const row = make(
    "tr",
    { role: "row", "aria-level": one.depth, tabindex: -1, "data-name": one.name, "data-map": one.map ? "" : undefined },
    make("td", { role: "gridcell" }, name),
    cell(one.kind, "tree-kind"),
    cell(one.shape, "tree-number"),
    cell(one.parameters, "tree-number tree-parameters"),
    make("td", { role: "gridcell", class: "tree-compute" }, bar),
  );
  return row;
}

function inPath(name, wanted) {
  return wanted === name || wanted.startsWith(`${name}.`);
}

// Which rows show: those under open ones; while one searches, the hits and what they hang under.
function layOut() {
  const wanted = search.value.trim().toLowerCase();
  const hits = new Set();
  if (wanted) {
    for (const row of rows) {
      if (!`${row.one.name} ${row.one.kind}`.toLowerCase().includes(wanted)) continue;
      for (let at = row; at; at = at.above) hits.add(at);
    }
  }
  for (const row of rows) {
    const { one, above, line } = row;
    row.shown = wanted ? hits.has(row) : !above || (above.shown && open.has(above.one.name));
    line.hidden = !row.shown;
    if (one.parts) line.setAttribute("aria-expanded", String(wanted ? true : open.has(one.name)));
  }
  const chosen = rows.find((row) => row.shown && row.one.name === props.value.chosen) ?? rows.find((row) => row.shown);
  focusable(rows.find((row) => row.shown && row.line.tabIndex === 0) ?? chosen);
}

function focusable(row, focus = false) {
  for (const each of rows) each.line.tabIndex = -1;
  if (!row) return;
  row.line.tabIndex = 0;
  if (focus) row.line.focus();
}

function show() {
  const value = props.value;
  if (!value || !value.rows) {
    if (value?.stale && rows.length) return; // the old tree stays until the next is there
    root.dataset.state = "empty";
    delete root.dataset.token;
    return;
  }
  const focused = body.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  build(value);
  for (const { one } of rows) if (value.chosen !== one.name && inPath(one.name, value.chosen)) open.add(one.name);
  root.querySelector(".tree-summary").textContent = `${value.title}: ${value.summary}`;
  root.dataset.state = "result";
  for (const { one, line } of rows) line.setAttribute("aria-selected", String(one.name === value.chosen));
  layOut();
  const chosen = rows.find(({ one }) => one.name === (focused ?? value.chosen));
  if (chosen) {
    focusable(chosen, Boolean(focused));
    bringIntoFrame(chosen.line);
  }
  root.dataset.token = value.token;
}

// scrollIntoView would move the page too.
function bringIntoFrame(line) {
  const frame = root.querySelector(".tree-frame");
  const head = root.querySelector("thead").offsetHeight;
  if (line.offsetTop < frame.scrollTop + head || line.offsetTop + line.offsetHeight > frame.scrollTop + frame.clientHeight) {
    frame.scrollTop = line.offsetTop - frame.clientHeight / 2;
  }
}

function toggle(row, on = !open.has(row.one.name)) {
  if (!row.one.parts || search.value.trim()) return;
  if (on) open.add(row.one.name);
  else open.delete(row.one.name);
  layOut();
}

const rowOf = (target) => rows.find((row) => row.line === target.closest?.("tr"));

function act(row) {
  if (row.one.map) trigger("inspect", { layer: row.one.name });
  else toggle(row);
}

body.addEventListener("click", (event) => {
  const row = rowOf(event.target);
  if (!row) return;
  focusable(row, true);
  if (event.target.closest(".tree-twist") && row.one.parts) toggle(row);
  else act(row);
});

body.addEventListener("keydown", (event) => {
  const row = rowOf(event.target);
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  const shown = rows.filter((each) => each.shown);
  const at = shown.indexOf(row);
  const isOpen = row.one.parts && open.has(row.one.name);
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 };
  if (event.key in moves) focusable(shown[moves[event.key]] ?? row, true);
  else if (event.key === "ArrowRight") isOpen ? focusable(shown[at + 1] ?? row, true) : toggle(row, true);
  else if (event.key === "ArrowLeft") isOpen ? toggle(row, false) : focusable(row.above ?? row, true);
  else if (event.key === "Enter" || event.key === " ") act(row);
  else return;
  event.preventDefault();
});

search.addEventListener("input", layOut);
root.querySelector(".tree-open").addEventListener("click", () => {
  for (const { one } of rows) if (one.parts) open.add(one.name);
  layOut();
});
root.querySelector(".tree-close").addEventListener("click", () => {
  open.clear();
  layOut();
});

watch("value", show);
show();
