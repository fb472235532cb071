// Runs as the body of a function of Gradio's: `props.value` is what depth_of() made. Everything is written as text.

const { make, svg } = window.camapp;
const root = element.querySelector(".depth");
const part = (name) => root.querySelector(`.depth-${name}`);
const chart = part("chart");
const PANEL = { height: 150, top: 26, gap: 18, left: 46, right: 10, bottom: 34 };

let view = null;
let at = 0; // the layer under the cursor
let cursor = null;

// The signs of verdicts, drawn around (0, 0): shapes, since a colour alone says nothing.
const SIGNS = {
  "non-finite": "M-4-4L4 4M-4 4L4-4",
  exploding: "M-5 4L0-5L5 4Z",
  vanishing: "M-5-4L0 5L5-4Z",
  dead: "M-4-4H4V4H-4Z",
  saturated: "M0-5L5 0L0 5L-5 0Z",
};

function show() {
  const value = props.value;
  if (!value || !value.layers) {
    if (value?.stale && view) return; // the old one stays until the next is there
    view = null;
    root.dataset.state = value?.error ? "error" : "empty";
    part("error").textContent = value?.error ?? "";
    part("summary").textContent = "";
    delete root.dataset.token;
    return;
  }
  const before = view?.layers[at]?.name;
  view = value;
  at = Math.max(0, value.layers.findIndex((layer) => layer.name === before));
  root.dataset.state = "result";
  part("summary").textContent = `One forward and backward of ${value.scored}`;
  drawVerdicts();
  drawKey();
  drawTable();
  part("words").textContent = value.words;
  part("download-zip").href = `result/${value.token}/inspection.zip`;
  part("copy").replaceChildren(window.camapp.copyBar(value.copies));
  chart.setAttribute("aria-valuemax", value.layers.length);
  draw();
  root.dataset.token = value.token;
}

function drawVerdicts() {
  const { verdicts, more, without_gradient: without } = view;
  const notes = without ? [make("p", {}, `No gradient reached ${without} ${without === 1 ? "layer or parameter" : "layers and parameters"}.`)] : [];
  const lines = verdicts.map(({ what, subject, why }) => make("li", {}, make("strong", {}, what), ` ${subject}: ${why}`));
  if (more > 0) lines.push(make("li", {}, `and ${more} more, marked in the chart and in the table`));
  const list = lines.length ? make("ul", {}, ...lines) : make("p", {}, "Nothing wrong was found: no layer is dead or saturated as a whole, no gradient vanishes or explodes. Single channels may be dead: see above.");
  part("verdicts").replaceChildren(list, ...notes);
}

function drawKey() {
  const used = new Set(view.panels.flatMap((panel) => panel.marks.map(([, what]) => what)));
  const entries = [...used].map((what) => {
    const icon = svg("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" });
    icon.append(svg("path", { class: "mark", d: SIGNS[what] ?? SIGNS.dead }));
    return make("li", {}, icon, what);
  });
  part("key").replaceChildren(...entries);
}

function drawTable() {
  const number = (text) => make("td", { class: "depth-number" }, text);
  part("frame").querySelector("tbody").replaceChildren(
    ...view.layers.map((layer) =>
      make("tr", {}, make("td", {}, layer.name), make("td", {}, layer.kind), number(layer.shape), number(layer.activation),
        number(layer.zero), number(layer.gradient), make("td", {}, layer.what.join(", "))),
    ),
  );
}

// Decades from the smallest to the largest value; zeros lie on a line of their own below.
function scaleOf(panel, top) {
  const known = panel.values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...known, ...(known.length ? [] : [1]))));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...known, ...(known.length ? [] : [10])))));
  const hasZero = panel.values.some((value) => value === 0);
  const room = PANEL.height - (hasZero ? 16 : 0);
  const y = (value) => (value > 0 ? top + room * (1 - (Math.log10(value) - low) / (high - low)) : top + PANEL.height);
  const step = Math.max(1, Math.ceil((high - low) / 5));
  const ticks = [];
  for (let power = low; power <= high; power += step) ticks.push([y(10 ** power), powerText(power)]);
  if (hasZero) ticks.push([top + PANEL.height, "0"]);
  return { y, ticks };
}

const powerText = (power) =>
  power >= -2 && power <= 3 ? String(Number((10 ** power).toPrecision(1))) : `10${[...String(power)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("")}`;

function placeOf(number, width) {
  const room = width - PANEL.left - PANEL.right;
  return PANEL.left + (room * (number + 0.5)) / view.layers.length;
}

function draw() {
  const width = Math.max(280, chart.clientWidth);
  const each = PANEL.top + PANEL.height + PANEL.gap;
  const height = each * view.panels.length + PANEL.bottom;
  const sheet = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  const bottom = height - PANEL.bottom - PANEL.gap;
  drawStages(sheet, width, bottom);
  view.panels.forEach((panel, number) => drawPanel(sheet, panel, number, width, each * number + PANEL.top));
  sheet.append(svg("text", { x: PANEL.left + (width - PANEL.left) / 2, y: height - 4, "text-anchor": "middle" }, `layers in running order, 1 to ${view.layers.length}`));
  cursor = svg("line", { class: "cursor", y1: PANEL.top, y2: bottom });
  sheet.append(cursor);
  chart.replaceChildren(sheet);
  pointAt(at, false);
}

function drawStages(sheet, width, bottom) {
  let free = -1; // labels that would overlap are left out
  view.stages.forEach(([start, name]) => {
    const x = placeOf(start - 0.5, width);
    if (start) sheet.append(svg("line", { class: "stage", x1: x, x2: x, y1: PANEL.top, y2: bottom }));
    const label = name.replace(/^(.{14}).+/, "$1…");
    if (x < free || x + label.length * 6.6 > width) return;
    sheet.append(svg("text", { x: x + 2, y: bottom + 15 }, label));
    free = x + label.length * 6.2 + 6;
  });
}

function drawPanel(sheet, panel, number, width, top) {
  const { y, ticks } = scaleOf(panel, top);
  sheet.append(svg("text", { class: "title", x: 0, y: top - 11 }, `${panel.title} (norm, log scale)`));
  for (const [line, text] of ticks) {
    sheet.append(svg("line", { class: "grid", x1: PANEL.left, x2: width - PANEL.right, y1: line, y2: line }));
    sheet.append(svg("text", { x: PANEL.left - 6, y: line + 4, "text-anchor": "end" }, text));
  }
  const half = (placeOf(1, width) - placeOf(0, width)) / 2;
  for (const place of panel.broken) {
    sheet.append(svg("rect", { class: "broken", x: placeOf(place, width) - half, width: Math.max(2, 2 * half), y: top, height: PANEL.height }));
  }
  let path = "";
  panel.values.forEach((value, place) => {
    const joined = place && panel.values[place - 1] !== null;
    if (value !== null) path += `${joined ? "L" : "M"}${placeOf(place, width).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  sheet.append(svg("path", { class: `line g${number}`, d: path }));
  const radius = half > 2.4 ? 2.4 : 1.6;
  panel.values.forEach((value, place) => {
    if (value !== null) sheet.append(svg("circle", { class: `g${number}`, cx: placeOf(place, width), cy: y(value), r: radius }));
  });
  const heights = {};
  for (const [place, what] of panel.marks) {
    const raised = (heights[place] = (heights[place] ?? -1) + 1);
    const value = panel.values[place];
    const line = (value === null ? top + 8 : Math.max(top + 4, y(value) - 10)) - raised * 11;
    sheet.append(svg("path", { class: "mark", d: SIGNS[what] ?? SIGNS.dead, transform: `translate(${placeOf(place, width)} ${line})` }));
  }
}

function inWords(layer) {
  const wrong = layer.what.length ? `; ${layer.what.join(", ")}` : "";
  return `${layer.name} (${layer.kind}): gradient ${layer.gradient || "none"}, activation ${layer.activation || "none"}, zeros ${layer.zero || "none"}${wrong}`;
}

function pointAt(number, told = true) {
  at = Math.min(view.layers.length - 1, Math.max(0, number));
  const layer = view.layers[at];
  const x = placeOf(at, Math.max(280, chart.clientWidth));
  cursor?.setAttribute("x1", x);
  cursor?.setAttribute("x2", x);
  chart.setAttribute("aria-valuenow", at + 1);
  chart.setAttribute("aria-valuetext", inWords(layer));
  part("readout").textContent = told || document.activeElement === chart
    ? `${inWords(layer)}${layer.map ? ". Click or press Enter to inspect it." : ""}`
    : "Point at the chart, or walk it with the arrow keys, to read the figures of a layer.";
}

function inspect() {
  if (view?.layers[at].map) trigger("inspect", { layer: view.layers[at].name });
}

function layerUnder(event) {
  const box = chart.getBoundingClientRect();
  const room = box.width - PANEL.left - PANEL.right;
  return Math.floor(((event.clientX - box.left - PANEL.left) / room) * view.layers.length);
}

chart.addEventListener("pointermove", (event) => view && pointAt(layerUnder(event)));
chart.addEventListener("click", (event) => {
  if (!view) return;
  pointAt(layerUnder(event));
  inspect();
});
chart.addEventListener("focus", () => view && pointAt(at));
chart.addEventListener("keydown", (event) => {
  if (!view || event.altKey || event.ctrlKey || event.metaKey) return;
  const stride = event.shiftKey ? 10 : 1;
  const moves = { ArrowRight: at + stride, ArrowUp: at + stride, ArrowLeft: at - stride, ArrowDown: at - stride, PageUp: at + 10, PageDown: at - 10, Home: 0, End: view.layers.length - 1 };
  if (event.key === "Enter" || event.key === " ") inspect();
  else if (event.key in moves) pointAt(moves[event.key]);
  else return;
  event.preventDefault();
});
new ResizeObserver(() => view && chart.clientWidth && draw()).observe(chart);

watch("value", show);
show();
