// Runs as the body of a function of Gradio's: the pictures as points of a plane. Everything is written as text.

const { make, svg, sheetOf, arrowStep } = window.camapp;
const part = (name) => element.querySelector(`.map-${name}`);
const [root, plot, tip, stage] = [element.querySelector(".map"), part("plot"), part("tip"), part("stage")];
const [layerBox, faces] = [part("layer select"), part("faces input")];

// Ten shapes and ten colours (Okabe and Ito's, darkened): 100 pairs before one repeats, and shapes tell without colour.
const COLORS = ["#0072b2", "#d55e00", "#009e73", "#b5548f", "#b07d00", "#2b8cc4", "#6f5aa8", "#8a6d3b", "#5c8a1e", "#c0392b"];
const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", // circle
  "M-4.5-4.5h9v9h-9z", // square
  "M0-6l5.5 10h-11z", // triangle
  "M0-6.2L6.2 0 0 6.2-6.2 0z", // diamond
  "M-1.8-6h3.6v4.2H6v3.6H1.8V6h-3.6V1.8H-6v-3.6h4.2z", // plus
  "M0 6l5.5-10h-11z", // triangle upside down
  "M0-6.5l1.9 4.1 4.5.5-3.3 3.1.9 4.5L0 3.5l-4 2.2.9-4.5-3.3-3.1 4.5-.5z", // star
  "M-5.6-3.2L-3.2-5.6 0-2.4l3.2-3.2 2.4 2.4L2.4 0l3.2 3.2-2.4 2.4L0 2.4l-3.2 3.2-2.4-2.4L-2.4 0z", // cross
  "M-6.2-2.2h12.4v4.4H-6.2z", // bar
  "M-3-5.5h6L6 0 3 5.5h-6L-6 0z", // hexagon
];
const MARGIN = { left: 54, right: 14, top: 12, bottom: 44 };
const FACES = { few: 44, many: 30 }; // pixels of the plot
const FEW = 60; // of so many, faces hide each other little

let view = null; // the value on show
let layer = null; // the layer on show
let places = []; // of each picture in the plot
let current = null; // the row chosen
let alone = null; // the class seen alone
let sheet = null; // address of the sprite
let asked = false; // whether somebody said if the pictures are to be shown

const faceSide = () => (view.pictures.length <= FEW / 3 ? FACES.few : FACES.many);
const labelOf = (row) => (view.labels ? view.labels[row] : "");
const looksOf = (place) => ({ shape: SHAPES[place % 10], color: COLORS[(place + 3 * Math.floor(place / 10)) % 10] });
const looks = (row) => {
  if (!view.labels) return looksOf(0);
  return labelOf(row) ? looksOf(view.classes.indexOf(labelOf(row))) : { shape: SHAPES[0], color: "#808a97" };
};

function face(row, side, words) {
  const told = words ? { role: "img", "aria-label": words } : { "aria-hidden": "true" };
  return window.camapp.face(view.sprite, sheet, row, side, { class: "map-face", ...told });
}

// ---- what is on show

function show() {
  view = props.value?.layers ? props.value : null;
  if (sheet) URL.revokeObjectURL(sheet);
  sheet = null;
  delete root.dataset.token;
  root.dataset.state = view ? "result" : "empty";
  if (!view) return;
  sheet = sheetOf(view.sprite);
  [current, alone] = [null, null];
  if (!asked) faces.checked = view.pictures.length <= FEW;
  layerBox.replaceChildren(...view.layers.map((one, place) => new Option(one.name, place)));
  part("layer").hidden = view.layers.length < 2;
  showLayer();
  root.dataset.token = view.token;
}

function showLayer() {
  layer = view.layers[layerBox.value];
  drawLegend();
  draw();
  drawDuplicates();
  drawCard();
}

function drawLegend() {
  const legend = part("legend");
  legend.hidden = !view.labels;
  if (!view.labels) return legend.replaceChildren();
  legend.replaceChildren(
    ...view.classes.map((name, place) => {
      const { shape, color } = looksOf(place);
      const mark = svg("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: shape, fill: color, class: "map-mark" }));
      const count = view.labels.filter((one) => one === name).length;
      const button = make("button", { type: "button", "aria-pressed": String(alone === name) }, mark, make("span", {}, name), make("small", {}, count));
      button.addEventListener("click", () => {
        alone = alone === name ? null : name;
        for (const other of legend.children) other.setAttribute("aria-pressed", String(other === button && alone === name));
        draw();
      });
      return button;
    }),
  );
}

// ---- the plot

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * power >= rough) * power;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(6)));
}

function scale(values, from, to) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = (high - low || 1) * 0.06;
  const at = (value) => from + ((value - low + pad) / (high - low + 2 * pad)) * (to - from);
  return { at, ticks: ticks(low - pad, high + pad, Math.abs(to - from) / 75) };
}

function draw() {
  if (!view) return;
  const { points, explained, reason } = layer.plane;
  part("reason").textContent = reason ?? "";
  part("reason").hidden = !reason;
  plot.style.display = reason ? "none" : "";
  part("faces").hidden = Boolean(reason);
  if (reason) return;
  const width = Math.max(260, stage.clientWidth);
  const height = Math.round(Math.min(width * 0.72, 460));
  plot.setAttribute("width", width);
  plot.setAttribute("height", height);
  plot.setAttribute(
    "aria-label",
    `${points.length} pictures on the first two principal components of ${layer.name}, which hold ${explained[0]} and ${explained[1]} of the variance. Arrow keys go from picture to picture, Enter chooses one.`,
  );
  const x = scale(points.map((one) => one[0]), MARGIN.left, width - MARGIN.right);
  const y = scale(points.map((one) => one[1]), height - MARGIN.bottom, MARGIN.top);
  places = points.map(([across, up]) => [x.at(across), y.at(up)]);
  const seen = (row) => alone === null || labelOf(row) === alone;
  const order = points.map((_, row) => row).sort((a, b) => seen(a) - seen(b));
  plot.replaceChildren(axes(x, y, width, height, explained), svg("g", { class: "map-lines", "aria-hidden": "true" }), svg("g", {}, ...order.map((row) => pointOf(row, seen(row)))));
  mark();
}

function axes(x, y, width, height, explained) {
  const [left, bottom] = [MARGIN.left, height - MARGIN.bottom];
  const node = svg("g", { class: "map-axes", "aria-hidden": "true" });
  for (const tick of x.ticks) {
    node.append(svg("line", { x1: x.at(tick), x2: x.at(tick), y1: MARGIN.top, y2: bottom }));
    node.append(svg("text", { x: x.at(tick), y: bottom + 16, "text-anchor": "middle" }, String(tick)));
  }
  for (const tick of y.ticks) {
    node.append(svg("line", { x1: left, x2: width - MARGIN.right, y1: y.at(tick), y2: y.at(tick) }));
    node.append(svg("text", { x: left - 7, y: y.at(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  const middle = [(left + width - MARGIN.right) / 2, (MARGIN.top + bottom) / 2];
  node.append(svg("text", { class: "map-title", x: middle[0], y: height - 6, "text-anchor": "middle" }, `Component 1 (${explained[0]} of the variance)`));
  node.append(svg("text", { class: "map-title", "text-anchor": "middle", transform: `translate(13 ${middle[1]}) rotate(-90)` }, `Component 2 (${explained[1]})`));
  return node;
}

function pointOf(row, seen) {
  const { shape, color } = looks(row);
  const words = [view.pictures[row], labelOf(row)].filter(Boolean).join(", ");
  const node = svg("g", {
    class: seen ? "map-point" : "map-point map-faded",
    role: "option",
    id: `map-point-${row}`,
    "aria-label": words,
    "aria-selected": "false",
    transform: `translate(${places[row][0].toFixed(1)} ${places[row][1].toFixed(1)})`,
  });
  if (faces.checked) {
    const { columns, rows, side } = view.sprite;
    const wide = faceSide();
    const cut = svg("svg", { x: -wide / 2, y: -wide / 2, width: wide, height: wide, viewBox: `${(row % columns) * side} ${Math.floor(row / columns) * side} ${side} ${side}` });
    cut.append(svg("image", { href: sheet, width: columns * side, height: rows * side }));
    node.append(cut, svg("rect", { x: -wide / 2, y: -wide / 2, width: wide, height: wide, fill: "none", stroke: color, "stroke-width": 2 }));
    if (view.labels) node.append(svg("path", { d: shape, fill: color, class: "map-mark", transform: `translate(${wide / 2 - 1} ${1 - wide / 2})` }));
  } else {
    node.append(svg("path", { d: shape, fill: color, class: "map-mark" }));
  }
  return node;
}

function mark() {
  plot.querySelector(".map-ring")?.remove();
  const links = plot.querySelector(".map-lines");
  links?.replaceChildren();
  for (const node of plot.querySelectorAll('[aria-selected="true"]')) node.setAttribute("aria-selected", "false");
  plot.removeAttribute("aria-activedescendant");
  if (current === null || !places[current] || !links) return;
  const [x, y] = places[current];
  for (const row of layer.neighbours.rows?.[current] ?? []) links.append(svg("line", { x1: x, y1: y, x2: places[row][0], y2: places[row][1] }));
  const node = plot.querySelector(`#map-point-${current}`);
  node.setAttribute("aria-selected", "true");
  node.parentNode.append(node);
  plot.setAttribute("aria-activedescendant", node.id);
  plot.append(svg("circle", { class: "map-ring", cx: x, cy: y, r: faces.checked ? faceSide() * 0.8 : 10 }));
}

function choose(row) {
  current = row;
  mark();
  drawCard();
}

// ---- the chosen picture, and pictures that are almost the same

function faceButton(row, words) {
  const button = make("button", { type: "button", "data-row": row, title: view.pictures[row], "aria-label": `${view.pictures[row]}, ${words}` }, face(row, 72), make("small", {}, words));
  button.addEventListener("click", () => choose(row));
  return button;
}

function drawCard() {
  const card = part("card");
  card.replaceChildren();
  if (current === null) {
    card.append(make("p", { class: "map-hint" }, layer.neighbours.reason ?? "Choose a picture in the plot to see which ones are nearest to it."));
    return;
  }
  const { rows, cosines, reason } = layer.neighbours;
  const label = labelOf(current);
  const named = make("p", { class: "map-name" }, view.pictures[current]);
  if (label) named.append(make("span", {}, label));
  card.append(make("div", { class: "map-chosen" }, face(current, 96, `${view.pictures[current]}${label ? `, ${label}` : ""}`), named));
  if (reason) return card.append(make("p", { class: "map-hint" }, reason));
  const near = rows[current].map((row, place) => make("li", {}, faceButton(row, cosines[current][place])));
  card.append(make("div", { class: "map-near" }, make("h3", {}, "Nearest, by cosine similarity"), make("ol", {}, ...near)));
}

function drawDuplicates() {
  const { threshold, groups, more, reason } = layer.duplicates;
  const title = make("h2", {}, "Near-duplicates");
  if (reason) return part("duplicates").replaceChildren(title, make("p", { class: "map-hint" }, reason));
  if (!groups.length) return part("duplicates").replaceChildren(title, make("p", { class: "map-hint" }, `No two pictures have a cosine of ${threshold} or more.`));
  const listed = groups.map((group) =>
    make("li", {}, ...group.rows.slice(0, 12).map((row) => faceButton(row, labelOf(row) || "picture")), make("span", { class: "map-hint" }, `${group.rows.length} pictures, cosine ${group.cosine}`)),
  );
  const hint = `Groups of pictures whose cosine is ${threshold} or more${more ? `; ${more} further groups are not shown` : ""}.`;
  part("duplicates").replaceChildren(title, make("p", { class: "map-hint" }, hint), make("ul", {}, ...listed));
}

// ---- pointer and keys

function under(event) {
  const box = plot.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let [best, least] = [null, faces.checked ? 20 : 13];
  places.forEach(([across, down], row) => {
    const apart = Math.hypot(across - x, down - y);
    if (apart < least && (alone === null || labelOf(row) === alone)) [best, least] = [row, apart];
  });
  return best;
}

plot.addEventListener("pointermove", (event) => {
  const row = view ? under(event) : null;
  tip.hidden = row === null;
  plot.style.cursor = row === null ? "" : "pointer";
  if (row === null || tip.dataset.row === String(row)) return;
  tip.dataset.row = row;
  const words = make("span", {}, view.pictures[row]);
  if (labelOf(row)) words.append(make("small", {}, labelOf(row)));
  tip.replaceChildren(face(row, 72), words);
  const [x, y] = places[row];
  tip.style.left = `${Math.min(Math.max(0, x + 14), Math.max(0, stage.clientWidth - 230))}px`;
  tip.style.top = `${Math.max(0, y > 120 ? y - 100 : y + 16)}px`;
});
plot.addEventListener("pointerleave", () => {
  tip.hidden = true;
  delete tip.dataset.row;
});
plot.addEventListener("click", (event) => {
  const row = under(event);
  if (row !== null) choose(row);
});

function next(way) {
  let [best, least] = [current, Infinity];
  places.forEach(([x, y], row) => {
    const [dx, dy] = [x - places[current][0], y - places[current][1]];
    const [along, aside] = [dx * way[0] + dy * way[1], Math.abs(dx * way[1]) + Math.abs(dy * way[0])];
    if (row !== current && along > 0 && along + 2 * aside < least && (alone === null || labelOf(row) === alone)) [best, least] = [row, along + 2 * aside];
  });
  return best;
}

plot.addEventListener("keydown", (event) => {
  if (!view || !places.length) return;
  const way = arrowStep(event, 1);
  const jump = { Home: 0, End: places.length - 1, Enter: current ?? 0, " ": current ?? 0 }[event.key];
  if (!way && jump === undefined) return;
  event.preventDefault();
  choose(way ? (current === null ? 0 : next(way)) : jump);
});
layerBox.addEventListener("change", showLayer);
faces.addEventListener("change", () => {
  asked = true;
  draw();
});
new ResizeObserver(() => view && draw()).observe(stage);

watch("value", show);
show();
