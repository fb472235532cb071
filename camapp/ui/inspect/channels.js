// Runs as the body of a function of Gradio's: `props.value` is what channels_of() made. Everything is written as text.

const { make, pixelsOf, svg, opacities, blend, outlineSeen, drawRamp } = window.camapp;
const colors = window.camapp.addColormaps(props.colormaps).viridis;
const root = element.querySelector(".channels");
const part = (name) => root.querySelector(`.channels-${name}`);
const [tiles, canvas, opacity] = [part("tiles"), part("canvas"), part("opacity").querySelector("input")];
const invitation = [part("empty-title").textContent, part("empty-text").textContent];
const isOpen = () => window.camapp.isOpen("inspect");
const outdated = window.camapp.whenOpen("inspect", () => trigger("wanted"));

let view = null; // the value on show, with its pixels
let at = 0; // which tile is chosen

async function show() {
  const value = props.value;
  if (!value || !value.tiles) {
    if (value?.stale && view) root.setAttribute("aria-busy", "true"); // the old ones stay until the next are there
    else invite(value);
    if (!value || value.stale) outdated();
    return;
  }
  const [width, height] = value.size;
  const [wide, high] = value.tile;
  const [picture, levels] = await Promise.all([
    pixelsOf(value.picture, width, height),
    pixelsOf(value.levels, wide, high * value.tiles.length),
  ]);
  if (props.value !== value) return; // a newer one came while this one was decoded
  const before = view?.layer === value.layer ? view.tiles[at]?.channel : undefined;
  view = { ...value, width, height, picture, levels };
  at = Math.max(0, value.tiles.findIndex((tile) => tile.channel === before));
  root.removeAttribute("aria-busy");
  root.dataset.state = "result";
  drawHead();
  drawTiles();
  drawHistogram();
  choose(at);
  if (isOpen()) window.camapp.address(value.address);
  root.dataset.token = value.token; // last: what is on show is this result
}

function invite(value) {
  view = null;
  root.removeAttribute("aria-busy");
  root.dataset.state = value?.error ? "error" : "empty";
  part("empty-title").textContent = value?.error ? "No channels" : invitation[0];
  part("empty-text").textContent = value?.error ?? invitation[1];
  delete root.dataset.token;
}

function drawHead() {
  const shown = view.tiles.length;
  const which = shown < view.channels ? `the best ${shown} of ${view.channels.toLocaleString("en")}` : `all ${shown}`;
  part("summary").textContent = `${view.layer} (${view.shape}): ${which}, by ${view.ranking}${view.of_target}`;
  part("warnings").replaceChildren(...view.warnings.map((text) => make("p", {}, text)));
  part("facts").replaceChildren(...view.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  const common = view.scale === "common";
  part("low").textContent = common ? view.common_text[0] : "lowest of each";
  part("high").textContent = common ? view.common_text[1] : "highest of each";
  part("legend").setAttribute("aria-label", `Colours from ${part("low").textContent} to ${part("high").textContent}`);
  drawRamp(part("legend"), colors);
  part("download-zip").href = `result/${view.token}/channels.zip`;
  part("copy").replaceChildren(window.camapp.copyBar([["Copy link", () => location.href], ...view.copies]));
}

// A level of a tile's own range, 0 to 255, as a level of the scale in use.
function scaled(tile) {
  const [low, high] = view.common;
  if (view.scale !== "common" || tile.low === null || !(high > low)) return (level) => level;
  const [offset, span] = [(tile.low - low) / (high - low), (tile.high - tile.low) / (high - low)];
  return (level) => 255 * offset + level * span;
}

function paint(out, to, level) {
  const entry = Math.min(255, Math.max(0, Math.round(level))) * 3;
  for (let channel = 0; channel < 3; channel++) out[to + channel] = colors[entry + channel];
  out[to + 3] = 255;
}

function drawTiles() {
  const [wide, high] = view.tile;
  tiles.replaceChildren(
    ...view.tiles.map((tile, number) => {
      const sheet = make("canvas", { width: wide, height: high, "aria-hidden": "true" });
      sheet.style.setProperty("--ratio", wide / high);
      const ink = sheet.getContext("2d");
      const image = ink.createImageData(wide, high);
      const toScale = scaled(tile);
      for (let place = 0; place < wide * high; place++) {
        const from = (number * wide * high + place) * 4;
        paint(image.data, place * 4, toScale(view.levels[from]));
        if (view.levels[from + 1] > 127) image.data.set(props.broken, place * 4);
      }
      ink.putImageData(image, 0, 0);
      const label = `Channel ${tile.channel}: ${tile.score}${tile.note ? `, ${tile.note}` : ""}`;
      return make(
        "div",
        { class: "channels-tile", role: "option", tabindex: -1, "aria-selected": "false", "aria-label": label, title: label },
        sheet,
        make("span", {}, make("b", {}, tile.channel), make("em", {}, tile.badge || tile.score)),
      );
    }),
  );
}

function choose(number, focus = false) {
  at = Math.min(view.tiles.length - 1, Math.max(0, number));
  [...tiles.children].forEach((tile, index) => {
    tile.setAttribute("aria-selected", String(index === at));
    tile.tabIndex = index === at ? 0 : -1;
  });
  if (focus) tiles.children[at].focus();
  const tile = view.tiles[at];
  part("title").textContent = `Channel ${tile.channel} on the picture`;
  part("words").textContent = tile.words;
  canvas.setAttribute("aria-label", `Channel ${tile.channel} of ${view.layer} over the picture. ${tile.words}`);
  part("download-overlay").href = `result/${view.token}/overlay.png?channel=${tile.channel}&opacity=${opacity.value / 100}`;
  root.dataset.channel = tile.channel;
  drawOverlay();
}

// As Geometry.to_original: bilinear, by the centres of pixels and cells, clamped at the edges of the map.
function samples(from, to, origin, extent, cells) {
  return Array.from({ length: to - from }, (_, index) => {
    const place = Math.min(cells - 1, Math.max(0, ((from + index + 0.5 - origin) / extent) * cells - 0.5));
    const low = Math.floor(place);
    return [low, Math.min(cells - 1, low + 1), place - low];
  });
}

function drawOverlay() {
  const { width, height, picture, seen } = view;
  const tile = view.tiles[at];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  canvas.style.setProperty("--ratio", width / height);
  const ink = canvas.getContext("2d");
  blend(ink, picture, smoothed(), seen, opacities(tile.flat ? 0 : opacity.value / 100, props.veil), colors);
  if (!view.sees_all) outlineSeen(ink, seen);
  part("opacity").querySelector("output").textContent = `${opacity.value}%`;
}

// The chosen tile at the picture's size and in the scale in use: a level for each pixel that the model saw.
function smoothed() {
  const { width, height, seen, levels } = view;
  const [wide, high] = view.tile;
  const toScale = scaled(view.tiles[at]);
  const base = at * wide * high;
  const value = (row, column) => levels[(base + row * wide + column) * 4];
  const placed = new Uint8Array(width * height);
  const across = samples(seen[0], seen[2], view.origin[0], view.extent[0], wide);
  samples(seen[1], seen[3], view.origin[1], view.extent[1], high).forEach(([top, bottom, down], y) => {
    across.forEach(([left, right, aside], x) => {
      const upper = value(top, left) * (1 - aside) + value(top, right) * aside;
      const lower = value(bottom, left) * (1 - aside) + value(bottom, right) * aside;
      const level = Math.min(255, Math.max(0, Math.round(toScale(upper * (1 - down) + lower * down))));
      placed[(seen[1] + y) * width + seen[0] + x] = level;
    });
  });
  return placed;
}

// Counts on a logarithmic scale: after a ReLU one bar holds half of all values.
function drawHistogram() {
  const { counts, edges, title, words } = view.histogram;
  part("histogram").querySelector("figcaption").textContent = title;
  part("spread").textContent = words;
  if (!counts.length) return part("chart").replaceChildren();
  const [width, height, left, bottom, top] = [460, 190, 52, 40, 8];
  const most = Math.max(1, Math.ceil(Math.log10(Math.max(...counts))));
  const [span, room] = [width - left - 8, height - bottom - top];
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}. ${words}` });
  const y = (count) => (count > 0 ? top + room * (1 - Math.log10(count) / most) : top + room);
  const x = (value) => left + (span * (value - edges[0])) / (edges.at(-1) - edges[0]);
  for (let power = 0; power <= most; power += Math.ceil(most / 5)) {
    const line = y(10 ** power);
    chart.append(svg("line", { class: "axis", x1: left, x2: width - 8, y1: line, y2: line }));
    chart.append(svg("text", { x: left - 6, y: line + 4, "text-anchor": "end" }, power < 4 ? String(10 ** power) : `10${superscript(power)}`));
  }
  counts.forEach((count, index) => {
    if (!count) return;
    const [from, to] = [x(edges[index]), x(edges[index + 1])];
    // a single value is one pixel high, so that it shows
    const bar = svg("rect", { class: "bar", x: from + 0.5, width: Math.max(1, to - from - 1), y: Math.min(y(count), top + room - 2), height: Math.max(2, top + room - y(count)) });
    bar.append(svg("title", {}, `${short(edges[index])} to ${short(edges[index + 1])}: ${count.toLocaleString("en")}`));
    chart.append(bar);
  });
  const ends = [[edges[0], "start"], [edges.at(-1), "end"]];
  const zero = (0 - edges[0]) / (edges.at(-1) - edges[0]);
  if (zero > 0.15 && zero < 0.85) ends.push([0, "middle"]);
  for (const [value, anchor] of ends) chart.append(svg("text", { x: x(value), y: height - bottom + 15, "text-anchor": anchor }, short(value)));
  chart.append(svg("text", { x: left + span / 2, y: height - 4, "text-anchor": "middle" }, "activation"));
  chart.append(svg("text", { x: 12, y: top + room / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${top + room / 2})` }, "values (log)"));
  part("chart").replaceChildren(chart);
}

const superscript = (power) => [...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
const short = (value) => (value === 0 ? "0" : Number(value.toPrecision(3)).toString());

tiles.addEventListener("click", (event) => {
  const tile = event.target.closest(".channels-tile");
  if (tile) choose([...tiles.children].indexOf(tile), true);
});
tiles.addEventListener("keydown", (event) => {
  if (!view || event.altKey || event.ctrlKey || event.metaKey) return;
  const here = [...tiles.children].indexOf(event.target.closest(".channels-tile"));
  const columns = getComputedStyle(tiles).gridTemplateColumns.split(" ").length;
  const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, ArrowDown: here + columns, ArrowUp: here - columns, Home: 0, End: view.tiles.length - 1, Enter: here, " ": here };
  if (!(event.key in moves)) return;
  event.preventDefault();
  if (moves[event.key] >= 0 && moves[event.key] < view.tiles.length) choose(moves[event.key], true);
});
opacity.addEventListener("input", () => view && choose(at));

window.camapp.onSelected(outdated);
watch("value", show);
show();
