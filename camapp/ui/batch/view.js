// Runs as the body of a function of Gradio's. Each value is whole, and only what changed in it is drawn again.
// Everything is written as text: names, labels and reasons are not ours.

const { make, copyBar } = window.camapp;
const part = (name) => element.querySelector(`.batch-${name}`);
const root = element.querySelector(".batch");
const dialog = part("dialog");
const invitation = { title: part("empty-title").textContent, text: part("empty-text").textContent };
const STATUSES = { waiting: "Waiting", running: "Running", done: "Done", failed: "Failed", left: "Not done" };
const SIGNS = { waiting: "·", running: "▸", done: "✓", failed: "✕", left: "–" };

let drawn = []; // by number: the row on show, with its elements
let run = null; // of the rows on show
let shown = null; // the number of the picture in the dialog

function show() {
  const value = props.value;
  delete root.dataset.token;
  if (!value || !value.rows) {
    reset(null);
    if (dialog.open) dialog.close();
    part("empty-title").textContent = value?.error ? "No result" : invitation.title;
    part("empty-text").textContent = value?.error ?? invitation.text;
    root.dataset.state = value?.error ? "error" : "empty";
    return;
  }
  if (value.run !== run || value.rows.length !== drawn.length || !value.run) reset(value.run);
  value.rows.forEach(drawRow);
  part("counts").textContent = value.counts;
  part("what").textContent = value.what;
  part("progress").max = Math.max(1, value.share[1]);
  part("progress").value = value.share[0];
  part("progress").hidden = value.phase !== "running";
  part("notes").replaceChildren(...value.notes.map((note) => make("li", {}, note)));
  drawDownload(value);
  drawCopies(value);
  root.dataset.state = "result";
  root.dataset.phase = value.phase;
  if (value.token) root.dataset.token = value.token; // last: the batch is over, and this is all of it
}

function reset(next) {
  run = next;
  drawn = [];
  part("gallery").replaceChildren();
  element.querySelector("tbody").replaceChildren();
}

// A row goes on from waiting to what became of it, and never back.
function drawRow(row, index) {
  const before = drawn[index];
  if (before?.row.status === row.status) {
    before.row = row;
    return;
  }
  const line = lineOf(row);
  if (before) before.line.replaceWith(line);
  else element.querySelector("tbody").append(line);
  drawn[index] = { row, line };
  if (row.thumbnail) part("gallery").append(cardOf(row));
}

function lineOf(row) {
  const name = row.thumbnail ? button("batch-name", row, row.name) : row.name;
  const state = cell("batch-status");
  state.append(make("span", { class: "batch-sign", "aria-hidden": "true" }, SIGNS[row.status]), STATUSES[row.status]);
  if (row.reason) state.append(make("span", { class: "batch-reason" }, row.reason));
  if (!row.label && row.reason) state.setAttribute("colspan", "4");
  const cells = [make("th", { scope: "row", role: "rowheader" }, name), state];
  if (row.label || !row.reason) {
    const text = `${row.label ?? ""}${row.blank ? " (blank map)" : ""}`;
    cells.push(cell("batch-class", text), cell("batch-number", row.share ?? ""), cell("batch-number", row.seconds ?? ""));
  }
  return make("tr", { role: "row", "data-status": row.status, "data-number": row.number }, ...cells);
}

// On a phone the rows are laid out as a grid, and a browser then knows no cells but by their roles.
const cell = (kind, ...children) => make("td", { class: kind, role: "cell" }, ...children);

function cardOf(row) {
  const image = make("img", { alt: altOf(row), src: row.thumbnail });
  const caption = make(
    "span",
    { class: "batch-caption" },
    make("span", { class: "batch-label" }, row.label),
    make("span", { class: "batch-share" }, row.share),
    make("span", { class: "batch-file" }, row.name),
  );
  return make("li", {}, button("batch-card", row, image, caption));
}

const button = (kind, row, ...children) => make("button", { type: "button", class: kind, "data-number": row.number }, ...children);
const altOf = (row) => `Overlay of ${row.name}, ${row.label}. ${row.words}`;

function drawDownload(value) {
  const link = part("download");
  link.hidden = !value.archive;
  if (!value.archive) return;
  link.href = `result/${value.run}/heatmaps.zip`;
  link.querySelector("small").textContent = `ZIP, ${value.archive}`;
}

function drawCopies(value) {
  const key = JSON.stringify(value.copies);
  if (part("copies").dataset.key === key) return; // whoever stands on a button keeps it
  part("copies").dataset.key = key;
  part("copies").replaceChildren(...(value.copies.length ? [copyBar(value.copies)] : []));
}

const pictures = () => drawn.map(({ row }) => row).filter((row) => row.thumbnail);

function look(number) {
  const row = drawn[number]?.row;
  if (!row?.thumbnail) return;
  shown = number;
  const image = dialog.querySelector("img");
  image.alt = altOf(row);
  image.src = row.thumbnail; // at once, until the larger one is there
  const larger = new Image();
  larger.onload = () => shown === number && (image.src = larger.src);
  larger.src = `result/${run}/${number + 1}.jpg`;
  dialog.querySelector("h2").textContent = row.name;
  dialog.setAttribute("aria-label", `${row.name}, ${row.label}`);
  part("facts").replaceChildren(...row.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  part("words").textContent = row.words;
  part("picture-notes").replaceChildren(...row.notes.map((note) => make("li", {}, note)));
  const all = pictures();
  part("previous").disabled = all[0].number === number;
  part("next").disabled = all.at(-1).number === number;
  if (!dialog.open) dialog.showModal();
}

function step(by) {
  const all = pictures();
  const next = all[all.findIndex((row) => row.number === shown) + by];
  if (next) look(next.number);
}

element.addEventListener("click", (event) => {
  const chosen = event.target.closest("button[data-number]");
  if (chosen) look(Number(chosen.dataset.number));
  else if (event.target === dialog) dialog.close(); // beside what it holds
});
part("close").addEventListener("click", () => dialog.close());
part("previous").addEventListener("click", () => step(-1));
part("next").addEventListener("click", () => step(1));
part("open").addEventListener("click", () => {
  dialog.close();
  trigger("open", { run, number: shown });
});
dialog.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  step(by);
});

watch("value", show);
show();
