// Runs as the body of a function of Gradio's: `props.value` is what patches_of() made. All cosines are here, so that a
// moving point needs no server; names and notes are written as text.

const { make, pixelsOf, pixelUnder, arrowStep, opacities, blend, drawRamp, onceAFrame, bytesOf } = window.camapp;
const part = (name) => element.querySelector(`.patches-${name}`);
const root = element.querySelector(".patches-view");
const colors = window.camapp.addColormaps(props.colormaps).viridis;
const invitation = part("empty").textContent;
const copies = make("div");
part("notes").after(copies);
const outdated = window.camapp.whenOpen("compare", () => trigger("wanted"));
let view = null; // the value on show, with pixels, cosines and canvases
let point = null; // {of, row, column}: the patch that all others are compared with
let held = false; // whether a click holds it while the mouse goes on

async function show() {
  const value = props.value;
  if (!value || !value.pictures) {
    view = point = null;
    root.dataset.state = value?.error ? "error" : "empty";
    part("empty").textContent = value?.error ?? invitation;
    delete root.dataset.token;
    if (value?.stale) outdated();
    return;
  }
  const pixels = await Promise.all(value.pictures.map(({ picture, size }) => pixelsOf(picture, ...size)));
  if (props.value !== value) return; // a newer one came while this one was decoded
  const cosines = bytesOf(value.cosines);
  const scenes = value.pictures.map((picture, of) => ({ ...picture, pixels: pixels[of], places: placesOf(picture, value.grid), ...canvasOf(picture, of) }));
  view = { ...value, cosines, scenes };
  part("pictures").replaceChildren(...scenes.map(({ figure }) => figure));
  part("low").textContent = signed(value.lowest);
  part("legend").setAttribute("aria-label", `Colours from ${signed(value.lowest)}, least similar, to 1, the same`);
  part("notes").replaceChildren(...value.notes.map((note) => make("li", {}, note)));
  copies.replaceChildren(window.camapp.copyBar([["Copy Python", value.python]]));
  drawRamp(part("legend"), colors);
  root.dataset.state = "result";
  held = false;
  choose(0, ...value.start);
  root.dataset.token = value.token; // last: what is on show is this result
}

function canvasOf({ name, size }, of) {
  const [width, height] = size;
  const which = ["First picture", "Second picture"][of];
  const canvas = make("canvas", { class: "patches-canvas", tabindex: "0", role: "img", width, height, "aria-label": `${which}. Arrow keys move from patch to patch.` });
  canvas.style.setProperty("--ratio", width / height);
  for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, (event) => pointed(event, of));
  canvas.addEventListener("keydown", (event) => keyed(event, of));
  return { canvas, context: canvas.getContext("2d"), figure: make("figure", { class: "patches-picture" }, canvas, make("figcaption", { title: name }, name)) };
}

// Which patch each pixel belongs to, of those that the model saw.
function placesOf({ size, seen, patch }, [rows, columns]) {
  const [width, height] = size;
  const places = new Int16Array(width * height);
  for (let y = seen[1]; y < seen[3]; y++) {
    for (let x = seen[0]; x < seen[2]; x++) {
      const [row, column] = patchAt(patch, rows, columns, x, y);
      places[y * width + x] = row * columns + column;
    }
  }
  return places;
}

function patchAt({ left, top, width, height }, rows, columns, x, y) {
  const inside = (value, most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
  return [inside((y + 0.5 - top) / height, rows), inside((x + 0.5 - left) / width, columns)];
}

function choose(of, row, column) {
  point = { of, row, column };
  tell();
  redraw();
}

const redraw = onceAFrame(draw);

const count = () => view.grid[0] * view.grid[1];
// 127 levels to each side of 0
const cosineOf = (of, place) => {
  const row = point.of * count() + point.row * view.grid[1] + point.column;
  return view.cosines[row * count() * view.scenes.length + of * count() + place] / 127 - 1;
};
const signed = (value) => value.toFixed(2).replace("-0.00", "0.00").replace("-", "−");

// The most similar patch of each picture; in the point's own, beside itself.
function best(of) {
  const own = of === point.of ? point.row * view.grid[1] + point.column : -1;
  let place = -1;
  for (let other = 0; other < count(); other++) {
    if (other !== own && (place < 0 || cosineOf(of, other) > cosineOf(of, place))) place = other;
  }
  return place;
}

function centreOf(of, place) {
  const { patch } = view.scenes[of];
  return [patch.left + ((place % view.grid[1]) + 0.5) * patch.width, patch.top + (Math.floor(place / view.grid[1]) + 0.5) * patch.height];
}

// In pixels of the picture itself.
function placeText(of, place) {
  const { size, original } = view.scenes[of];
  const [x, y] = centreOf(of, place);
  return `x ${Math.round((x * original[0]) / size[0])}, y ${Math.round((y * original[1]) / size[1])}`;
}

function tell() {
  const here = point.row * view.grid[1] + point.column;
  const which = (of) => (view.scenes.length < 2 ? "the picture" : of ? "the second picture" : "the first picture");
  const found = view.scenes.map((_, of) => {
    const place = best(of);
    const where = of === point.of ? `elsewhere in ${which(of)}` : `in ${which(of)}`;
    return `most similar ${where}: ${signed(cosineOf(of, place))} at ${placeText(of, place)}`;
  });
  part("words").firstElementChild.textContent =
    `Patch in row ${point.row + 1}, column ${point.column + 1} of ${view.grid[0]} × ${view.grid[1]} (${placeText(point.of, here)} of ${which(point.of)}); ${found.join("; ")}.`;
}

function draw() {
  if (!view) return;
  const weights = opacities(part("opacity").value / 100, props.veil);
  view.scenes.forEach((scene, of) => {
    const similar = Array.from({ length: count() }, (_, place) => cosineOf(of, place));
    const levels = similar.map((cosine) => Math.round(255 * Math.min(1, Math.max(0, (cosine - view.lowest) / (1 - view.lowest || 1)))));
    blend(scene.context, scene.pixels, scene.places.map((place) => levels[place]), scene.seen, weights, colors);
    outline(scene, best(of), true);
    if (of === point.of) outline(scene, point.row * view.grid[1] + point.column, false);
  });
}

// The point's own patch in a full line, the best match in a dashed one.
function outline({ context, patch }, place, dashed) {
  const box = [patch.left + (place % view.grid[1]) * patch.width, patch.top + Math.floor(place / view.grid[1]) * patch.height, patch.width, patch.height];
  for (const [color, line] of [["#000", 4], ["#fff", 2]]) {
    context.strokeStyle = color;
    context.lineWidth = line;
    context.setLineDash(dashed ? [5, 4] : []);
    context.strokeRect(...box);
  }
}

function pointed(event, of) {
  if (!view) return;
  if (event.type === "pointerdown") held = event.pointerType === "mouse" && !held;
  else if (held) return;
  const { canvas, seen, patch } = view.scenes[of];
  const [x, y] = pixelUnder(event, canvas);
  if (x < seen[0] || x >= seen[2] || y < seen[1] || y >= seen[3]) return;
  part("words").removeAttribute("aria-live"); // a moving mouse must not make a screen reader chatter
  choose(of, ...patchAt(patch, ...view.grid, x, y));
}

function keyed(event, of) {
  const step = arrowStep(event, 1);
  if (!view || !step) return;
  event.preventDefault();
  part("words").setAttribute("aria-live", "polite");
  held = false;
  const from = point.of === of ? point : { row: view.start[0], column: view.start[1] };
  const inside = (value, most) => Math.min(most - 1, Math.max(0, value));
  choose(of, inside(from.row + step[1], view.grid[0]), inside(from.column + step[0], view.grid[1]));
}

part("opacity").addEventListener("input", redraw);
window.camapp.onSelected(outdated);
watch("value", show);
show();
