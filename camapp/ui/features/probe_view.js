// Runs as the body of a function of Gradio's: how good a trained classifier is. Everything is written as text.

const { make, copyBar, sheetOf, face } = window.camapp;
const root = element.querySelector(".probe");
const FACE = 88;
let sheet = null; // address of the sprite of the pictures told wrong

function figures(rows) {
  const tiles = rows.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, make("b", {}, value), make("small", {}, more))));
  return make("dl", { class: "probe-figures" }, ...tiles);
}

function actions(value) {
  const base = `result/${value.downloads.files}`;
  const open = make("button", { type: "button", class: "probe-open" }, "Open in Explain");
  open.addEventListener("click", () => trigger("explain", { token: value.token }));
  const bar = make("div", { class: "probe-actions" }, open);
  const links = [
    [value.downloads.probe, "Classifier", ".camapp"],
    [value.downloads.report, "Report", ".zip"],
  ];
  for (const [file, title, kind] of links) {
    if (file) bar.append(make("a", { href: `${base}/${encodeURIComponent(file)}`, download: "", "data-file": kind }, title, make("small", {}, ` ${kind}`)));
  }
  bar.append(copyBar([["Copy Python", value.code.python], ["Copy command", value.code.command]]));
  return bar;
}

function table(caption, head, rows) {
  return make(
    "div",
    { class: "probe-scroll", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)),
  );
}

function matrix(value) {
  const title = make("h3", {}, "Confusion matrix");
  if (!value.confusion) return [title, make("p", { class: "probe-hint" }, `${value.classes.length} classes are too many for a table; the report has their matrix as a picture.`)];
  const names = value.classes.map((name) => make("th", { scope: "col", title: name }, make("span", {}, name)));
  const rows = value.confusion.map((counts, row) => {
    const all = counts.reduce((sum, one) => sum + one, 0);
    const cells = counts.map((count, column) => cell(value, row, column, count, all));
    return make("tr", {}, make("th", { scope: "row", title: value.classes[row] }, value.classes[row]), ...cells);
  });
  const drawn = table("Confusion matrix: a row a class, a column a prediction", [make("td", { class: "probe-corner" }, "class ↓  told as →"), ...names], rows);
  drawn.classList.add("probe-matrix");
  return [title, make("p", { class: "probe-hint" }, "How many test pictures of each class were told as which. Press a number off the diagonal to see its pictures."), drawn];
}

function cell(value, row, column, count, all) {
  const node = make("td", { class: row === column ? "probe-right" : "" });
  node.style.setProperty("--share", all ? `${Math.round((46 * count) / all)}%` : "0%");
  if (row === column || !count) {
    node.textContent = count ? String(count) : row === column ? "0" : "";
    return node;
  }
  const [label, predicted] = [value.classes[row], value.classes[column]];
  const button = make("button", { type: "button", "aria-pressed": "false", "aria-label": `${label} told as ${predicted}: ${count}` }, String(count));
  button.addEventListener("click", () => {
    const chosen = button.getAttribute("aria-pressed") === "true" ? null : { label, predicted };
    for (const other of root.querySelectorAll(".probe-matrix button")) other.setAttribute("aria-pressed", String(other === button && chosen !== null));
    showMistakes(value, chosen);
  });
  node.append(button);
  return node;
}

function measures(value) {
  const head = ["Class", "Precision", "Recall", "F1", "Test pictures"].map((title, place) => make("th", { scope: "col", class: place ? "number" : "" }, title));
  const rows = value.measures.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((one) => make("td", { class: "number" }, one))));
  return make("details", { class: "probe-measures" }, make("summary", {}, "Each class"), table("Measures of each class", head, rows));
}

function showMistakes(value, chosen) {
  const shown = value.mistakes.map((one, place) => [one, place]).filter(([one]) => !chosen || (one.label === chosen.label && one.predicted === chosen.predicted));
  const title = chosen ? `${chosen.label} told as ${chosen.predicted}: ${shown.length}` : value.mistakes.length ? `Told wrong: ${value.mistakes.length + value.more}` : "No test picture was told wrong";
  const items = shown.map(([one, place]) => {
    const words = make("span", {}, make("span", { class: "probe-told" }, one.label, " → ", make("b", {}, one.predicted)), make("small", {}, one.probability));
    return make("li", { title: one.name }, face(value.sprite, sheet, place, FACE, { class: "probe-face", role: "img", "aria-label": one.name }), words);
  });
  const box = root.querySelector(".probe-mistakes");
  box.replaceChildren(make("h3", { "aria-live": "polite" }, title), make("ul", {}, ...items));
  if (value.more && !chosen) box.append(make("p", { class: "probe-hint" }, `${value.more} more are in the report.`));
}

function show() {
  const value = props.value;
  if (sheet) URL.revokeObjectURL(sheet);
  sheet = null;
  delete root.dataset.token;
  root.dataset.state = value?.figures ? "result" : value?.error ? "error" : "empty";
  root.replaceChildren();
  if (value?.error) root.append(make("h2", {}, "No classifier"), make("p", { class: "probe-error" }, value.error));
  if (!value?.figures) return;
  if (value.sprite) sheet = sheetOf(value.sprite);
  const notes = [value.downloads.reason, ...value.notes].filter(Boolean).map((note) => make("p", { class: "probe-note" }, note));
  root.append(
    make("h2", {}, "Classifier"),
    make("p", { class: "probe-hint" }, `${value.title}${value.setting ? `; ${value.setting}` : ""}`),
    figures(value.figures),
    ...notes,
    actions(value),
    ...matrix(value),
    measures(value),
    make("div", { class: "probe-mistakes" }),
  );
  showMistakes(value, null);
  root.dataset.token = value.token;
}

watch("value", show);
show();
