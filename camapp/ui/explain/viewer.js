// Runs as the body of a function of Gradio's: `element` is the component, `props.value` what view_of() made, and
// watch() tells of a new value. The server is asked only where the map on show belongs to another selection.

const { make, pixelsOf, levelsOf, pixelUnder, arrowStep, opacities, blend, outlineSeen, drawRamp, onceAFrame } = window.camapp;
const part = (name) => element.querySelector(`.viewer-${name}`);
const root = element.querySelector(".viewer");
const canvas = part("canvas");
const context = canvas.getContext("2d", { willReadFrequently: true });
const knobs = { opacity: part("opacity"), threshold: part("threshold"), split: part("split"), colors: part("colors") };

const colormaps = window.camapp.addColormaps(props.colormaps);
for (const name of props.choices) {
  knobs.colors.add(new Option(name, name));
}

const invitation = { title: part("empty-title").textContent, text: part("empty-text").textContent };
const outdated = window.camapp.whenOpen("explain", () => props.value?.stale && trigger("wanted"));
let view = null; // the value on show, with its pixels
let cross = { x: 0, y: 0 };

async function show() {
  const value = props.value;
  if (!value || !value.picture) {
    view = null;
    root.dataset.state = "empty";
    part("empty-title").textContent = value?.error ? "No heatmap" : invitation.title;
    part("empty-text").textContent = value?.error ?? invitation.text;
    canvas.setAttribute("aria-label", "No heatmap yet");
    canvas.width = canvas.height = 1;
    delete root.dataset.token;
    if (value?.stale) outdated();
    return;
  }
  const [width, height] = value.size;
  const heatsOf = value.maps.map((map) => levelsOf(map.levels, width, height));
  const [picture, ...heats] = await Promise.all([pixelsOf(value.picture, width, height), ...heatsOf]);
  if (props.value !== value) return; // a newer one came while this one was decoded
  view = { ...value, width, height, picture, heats };
  canvas.width = width;
  canvas.height = height;
  canvas.style.setProperty("--ratio", width / height);
  root.dataset.state = "result";
  drawModes();
  showMap(value.maps.length - 1); // of two classes, what sets them apart
  root.dataset.token = value.token; // last: what is on show is this result
}

// Buttons for class A, class B and their difference, where there are two.
function drawModes() {
  const names = view.maps.length > 1 ? ["A", "B", "A − B"] : [];
  part("modes").hidden = !names.length;
  part("modes").replaceChildren(
    ...names.map((name, index) => {
      const label = index < 2 ? `${name}: ${view.maps[index].label}` : name;
      const button = make("button", { type: "button" }, label);
      button.addEventListener("click", () => showMap(index));
      return button;
    }),
  );
}

function showMap(index) {
  const map = view.maps[index];
  view.map = map;
  view.which = ["a", "b", "difference"][index];
  view.heat = view.heats[index];
  cross = { x: map.peak[0], y: map.peak[1] };
  [...part("modes").children].forEach((button, at) => button.setAttribute("aria-pressed", String(at === index)));
  canvas.setAttribute("aria-label", `Heatmap of ${map.label}. ${map.alternative} Arrow keys read its values.`);
  part("words").textContent = map.alternative;
  part("low").textContent = map.signed ? "−1" : "0";
  part("legend").setAttribute("aria-label", map.signed ? "Colours from −1, blue, to 1, orange" : "Colours from 0, cold, to 1, hot");
  knobs.colors.disabled = Boolean(map.signed);
  draw();
  readOut(cross.x, cross.y);
}

function draw() {
  if (!view) return;
  const { picture, heat, seen } = view;
  const { signed, blank } = view.map;
  const opacity = blank ? 0 : knobs.opacity.value / 100; // a blank map is told in words, not painted
  const split = Math.round((view.width * knobs.split.value) / 100);
  const colors = colormaps[signed ? "difference" : knobs.colors.value];
  const weights = opacities(opacity, props.veil, { signed, hideBelow: knobs.threshold.value / 100 });
  blend(context, picture, heat, [Math.max(seen[0], split), ...seen.slice(1)], weights, colors);
  if (!view.sees_all) outlineSeen(context, seen);
  drawCross();
  drawRamp(part("legend"), colors);
  part("opacity-value").textContent = `${knobs.opacity.value}%`;
  part("threshold-value").textContent = (knobs.threshold.value / 100).toFixed(2);
  part("split-value").textContent = `${knobs.split.value}%`;
  linkDownloads();
}

function drawCross() {
  if (document.activeElement !== canvas) return; // it belongs to the keyboard
  const arm = Math.max(6, Math.round(Math.max(view.width, view.height) / 60));
  const [x, y] = [cross.x + 0.5, cross.y + 0.5];
  for (const [color, width] of [["#000", arm / 3], ["#fff", arm / 8]]) {
    context.strokeStyle = color;
    context.lineWidth = Math.max(1, width);
    context.beginPath();
    context.moveTo(x - arm, y);
    context.lineTo(x + arm, y);
    context.moveTo(x, y - arm);
    context.lineTo(x, y + arm);
    context.stroke();
  }
}

// What a level of 0 to 255 stands for: 0 to 1, or -1 to 1.
const valueOf = (level) => (view.map.signed ? (2 * level) / 255 - 1 : level / 255);

function readOut(x, y) {
  const [left, top, right, bottom] = view.seen;
  const inside = x >= left && x < right && y >= top && y < bottom;
  const value = inside ? valueOf(view.heat[y * view.width + x]).toFixed(2) : "not seen by the model";
  const [acrossOriginal, downOriginal] = [(x * view.original[0]) / view.width, (y * view.original[1]) / view.height];
  part("readout").textContent = `x ${Math.floor(acrossOriginal)}, y ${Math.floor(downOriginal)}: ${value}`;
}

function linkDownloads() {
  const looks = new URLSearchParams({
    opacity: knobs.opacity.value / 100,
    colors: knobs.colors.value,
    threshold: knobs.threshold.value / 100,
    map: view.which,
  });
  const base = `result/${view.token}`;
  part("download-overlay").href = `${base}/overlay.png?${looks}`;
  part("download-heatmap").href = `${base}/heatmap.png?map=${view.which}`;
  part("download-values").href = `${base}/npy?map=${view.which}`;
  part("download-summary").href = `${base}/json`;
}

const redraw = onceAFrame(draw);

canvas.addEventListener("pointermove", (event) => {
  if (!view) return;
  part("readout").removeAttribute("aria-live"); // a moving mouse must not make a screen reader chatter
  readOut(...pixelUnder(event, canvas));
});
canvas.addEventListener("pointerdown", (event) => {
  if (view) [cross.x, cross.y] = pixelUnder(event, canvas);
});
canvas.addEventListener("keydown", (event) => {
  if (!view) return;
  const step = arrowStep(event);
  if (step) {
    cross.x = Math.min(view.width - 1, Math.max(0, cross.x + step[0]));
    cross.y = Math.min(view.height - 1, Math.max(0, cross.y + step[1]));
  } else if (event.key === "Home") {
    [cross.x, cross.y] = view.map.peak;
  } else {
    return;
  }
  event.preventDefault();
  part("readout").setAttribute("aria-live", "polite");
  readOut(cross.x, cross.y);
  redraw();
});
for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, redraw);
for (const knob of Object.values(knobs)) knob.addEventListener("input", redraw);

// The look belongs to the address, which sets the knobs once and is told of each turn.
const asked = new URLSearchParams(location.search);
for (const name of ["opacity", "threshold"]) {
  const value = Number(asked.get(name));
  if (asked.has(name) && value >= 0 && value <= 100) knobs[name].value = value;
}
if (props.choices.includes(asked.get("colors"))) knobs.colors.value = asked.get("colors");
for (const [name, knob] of Object.entries(knobs)) {
  if (name !== "split") knob.addEventListener("change", () => window.camapp.address({ [name]: knob.value }));
}

part("large").addEventListener("click", () => {
  if (document.fullscreenElement) document.exitFullscreen();
  else part("stage").requestFullscreen?.();
});

watch("value", show);
show();
