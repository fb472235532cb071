// Runs as the body of a function of Gradio's: `props.value` is what grid_of() made. Names, reasons and notes are written
// as text: they are not ours. The maps are blended here, and one crosshair moves over all of them.

const { make, pixelsOf, levelsOf, pixelUnder, arrowStep, opacities, blend, outlineSeen, drawRamp, onceAFrame } = window.camapp;
const part = (name) => element.querySelector(`.grid-${name}`);
const root = element.querySelector(".grid-view");
const maps = part("maps");
const knobs = { opacity: part("opacity"), threshold: part("threshold"), colors: part("colors") };
const colormaps = window.camapp.addColormaps(props.colormaps);
for (const name of props.choices) knobs.colors.add(new Option(name, name));

const invitation = { title: part("empty-title").textContent, text: part("empty-text").textContent };
const copies = make("div", { class: "grid-copies" });
part("downloads").after(copies);
const outdated = window.camapp.whenOpen("compare", () => trigger("wanted"));
let view = null; // the value on show, with its pixels and the elements of its cells
let cross = { x: 0, y: 0 };

async function show() {
  const value = props.value;
  if (!value || !value.cells) {
    view = null;
    root.dataset.state = value?.error ? "error" : "empty";
    part("empty-title").textContent = value?.error ? "No comparison" : invitation.title;
    part("empty-text").textContent = value?.error ?? invitation.text;
    delete root.dataset.token;
    if (value?.stale) outdated();
    return;
  }
  const [width, height] = value.size;
  const heatsOf = value.cells.map((cell) => (cell.levels ? levelsOf(cell.levels, width, height) : null));
  const [picture, ...heats] = await Promise.all([pixelsOf(value.picture, width, height), ...heatsOf]);
  if (props.value !== value) return; // a newer one came while this one was decoded
  view = { ...value, width, height, picture, heats };
  drawTitle();
  drawCells();
  part("tables").replaceChildren(...value.tables.map(table));
  part("tables").style.setProperty("--narrowest", `${6 + 2.9 * value.cells.length}rem`); // beside each other where both fit
  part("words").textContent = value.words;
  part("notes").replaceChildren(...value.notes.map((note) => make("li", {}, note)));
  copies.replaceChildren(window.camapp.copyBar([["Copy Python", value.python], ["Copy command", value.command]]));
  if (window.camapp.isOpen("compare")) window.camapp.address(value.address);
  root.dataset.state = "result";
  paint();
  const first = value.cells.find((cell) => cell.peak);
  moveTo(...(first?.peak ?? [width >> 1, height >> 1]));
  root.dataset.token = value.token; // last: what is on show is this result
}

function drawTitle() {
  part("title").replaceChildren(`${view.label} `, make("small", {}, view.facts));
}

// With one layer the maps follow each other; with several each method is a row and each layer a column.
function drawCells() {
  const flow = view.columns.length === 1;
  maps.toggleAttribute("data-flow", flow);
  maps.style.setProperty("--ratio", view.width / view.height);
  maps.style.setProperty("--across", flow ? acrossOf(view.cells.length) : view.columns.length);
  maps.replaceChildren();
  if (!flow) maps.append(...view.columns.map(({ name, detail }) => make("p", { class: "grid-column", title: name }, name, make("small", {}, detail))));
  view.parts = view.cells.map((cell, number) => cellOf(cell, number, flow));
  for (const { name, title, detail } of view.rows) {
    if (!flow) maps.append(make("h3", { class: "grid-row" }, title, make("small", {}, detail)));
    const own = view.parts.filter((_, number) => view.cells[number].method === name);
    maps.append(...own.map(({ figure }) => figure));
    if (!flow) own.at(-1).figure.style.gridColumnEnd = "auto";
    // a method of the whole network has one map, and leaves the other places free
    if (!flow) for (let free = own.length; free < view.columns.length; free++) maps.append(make("div", { "aria-hidden": "true" }));
  }
  maps.setAttribute(
    "aria-label",
    `${view.cells.length} maps of ${view.label} under one crosshair. Arrow keys move it, with Shift by ten; Home goes to the hottest place of the first map.`,
  );
}

const acrossOf = (count) => (count === 4 ? 2 : Math.min(count, 3));

function cellOf(cell, number, flow) {
  const name = make("span", { class: "grid-name", title: cell.title });
  if (cell.letter) name.append(make("span", { class: "grid-letter" }, cell.letter));
  name.append(flow ? cell.method_title : cell.column);
  const caption = make("figcaption", { class: "grid-caption" }, name);
  const figure = make("figure", { class: "grid-cell", "data-cell": number });
  if (!cell.levels) {
    figure.append(make("div", { class: "grid-stage grid-refused" }, cell.reason), caption);
    return { figure };
  }
  const canvas = make("canvas", { width: view.width, height: view.height, role: "img", "aria-label": cell.alternative });
  const output = make("span", { class: "grid-value" });
  const use = make("button", { type: "button", class: "grid-use", "aria-label": `Use ${cell.title} in Explain` }, "Use this one");
  use.addEventListener("click", () => trigger("choose", { method: cell.method, layer: cell.layer }));
  caption.append(output);
  for (const text of [cell.at, cell.blank]) if (text) caption.append(make("span", { class: "grid-at" }, text));
  caption.append(use);
  figure.append(make("div", { class: "grid-stage" }, canvas), caption);
  return { figure, output, canvas, context: canvas.getContext("2d") };
}

function paint() {
  if (!view) return;
  const alpha = knobs.opacity.value / 100;
  const hideBelow = knobs.threshold.value / 100;
  const colors = colormaps[knobs.colors.value];
  const [weights, none] = [opacities(alpha, props.veil, { hideBelow }), opacities(0, props.veil)];
  view.parts.forEach(({ context }, number) => {
    if (!context) return;
    blend(context, view.picture, view.heats[number], view.seen, view.cells[number].blank ? none : weights, colors);
    if (!view.sees_all) outlineSeen(context, view.seen);
  });
  drawRamp(part("legend"), colors);
  linkDownloads();
  part("opacity-value").textContent = `${knobs.opacity.value}%`;
  part("threshold-value").textContent = hideBelow.toFixed(2);
}

// What is downloaded has the opacity and the colours on show.
function linkDownloads() {
  const look = new URLSearchParams({ opacity: knobs.opacity.value / 100, colors: knobs.colors.value });
  for (const [name, file] of Object.entries(view.files)) part(name).href = `result/${view.token}/${file}?${look}`;
}

function moveTo(x, y) {
  const { width, height, seen } = view;
  cross = { x: Math.min(width - 1, Math.max(0, x)), y: Math.min(height - 1, Math.max(0, y)) };
  maps.style.setProperty("--cross-x", `${((cross.x + 0.5) / width) * 100}%`);
  maps.style.setProperty("--cross-y", `${((cross.y + 0.5) / height) * 100}%`);
  const inside = cross.x >= seen[0] && cross.x < seen[2] && cross.y >= seen[1] && cross.y < seen[3];
  const told = [];
  view.parts.forEach(({ output }, number) => {
    if (!output) return;
    output.textContent = inside ? (view.heats[number][cross.y * width + cross.x] / 255).toFixed(2) : "–";
    told.push(`${view.cells[number].letter} ${output.textContent}`);
  });
  const at = `x ${Math.floor((cross.x * view.original[0]) / width)}, y ${Math.floor((cross.y * view.original[1]) / height)}`;
  part("readout").firstElementChild.textContent = inside ? `${at}: ${told.join(", ")}` : `${at}: not seen by the model`;
}

function table({ title, about, letters, names, values }) {
  const head = make("tr", {}, make("td", { "data-same": "" }), ...letters.map((letter) => make("th", { scope: "col" }, letter)));
  const rows = values.map((row, at) =>
    make("tr", {}, make("th", { scope: "row", title: names[at] }, make("span", { class: "grid-letter" }, letters[at]), make("span", {}, names[at])),
      ...row.map((value, other) => number(value, at === other))),
  );
  const whole = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  const many = letters.length > 8 ? "" : undefined;
  return make("section", { class: "grid-table", "data-many": many }, make("h3", {}, title), make("p", {}, about),
    make("div", { class: "grid-scroll", tabindex: "0", role: "group", "aria-label": title }, whole));
}

function number(value, same) {
  const cell = make("td", same ? { "data-same": "" } : {}, value === null ? "–" : value.toFixed(2).replace("-", "−"));
  if (!same && value !== null) {
    cell.style.setProperty("--share", Math.abs(value));
    cell.toggleAttribute("data-negative", value < 0);
  }
  return cell;
}

for (const kind of ["pointermove", "pointerdown"]) {
  maps.addEventListener(kind, (event) => {
    const canvas = event.target.closest(".grid-stage")?.querySelector("canvas");
    if (!view || !canvas) return;
    part("readout").removeAttribute("aria-live"); // a moving mouse must not make a screen reader chatter
    moveTo(...pixelUnder(event, canvas));
  });
}
maps.addEventListener("keydown", (event) => {
  if (!view || event.target !== maps) return;
  const step = arrowStep(event);
  if (step) part("readout").setAttribute("aria-live", "polite");
  if (step) moveTo(cross.x + step[0], cross.y + step[1]);
  else if (event.key === "Home") moveTo(...(view.cells.find((cell) => cell.peak)?.peak ?? [0, 0]));
  else return;
  event.preventDefault();
});
for (const knob of Object.values(knobs)) knob.addEventListener("input", onceAFrame(paint));

window.camapp.onSelected(outdated);
watch("value", show);
show();
