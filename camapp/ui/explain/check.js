// Runs as the body of a function of Gradio's. Draws two charts; every text is written as text.

const { make, svg } = window.camapp;
const root = element.querySelector(".check");
const [WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM] = [360, 230, 54, 12, 22, 40];

const x = (share) => LEFT + share * (WIDTH - LEFT - RIGHT);
const y = (score) => HEIGHT - BOTTOM - score * (HEIGHT - TOP - BOTTOM);

function line(shares, curve, kind) {
  const points = shares.map((share, at) => `${x(share).toFixed(1)},${y(curve[at]).toFixed(1)}`).join(" ");
  return svg("polyline", { points, class: `check-${kind}` });
}

function chart(panel, shares) {
  const title = `${panel.title} (${panel.better})`;
  const sheet = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: the curves are in the table below.` });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    sheet.append(svg("line", { x1: x(0), x2: x(1), y1: y(tick), y2: y(tick), class: "check-grid" }));
    sheet.append(svg("text", { x: x(0) - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toFixed(2)));
    sheet.append(svg("text", { x: x(tick), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, `${tick * 100}%`));
  }
  const changed = panel.title === "Insertion" ? "pixels shown sharp" : "pixels taken away";
  sheet.append(svg("text", { x: x(0.5), y: HEIGHT - 6, "text-anchor": "middle" }, `${changed}, hottest first`));
  const upright = { x: -y(0.5), y: 11, transform: "rotate(-90)", "text-anchor": "middle" };
  sheet.append(svg("text", upright, "probability of the class"));
  for (const curve of panel.random) sheet.append(line(shares, curve, "random"));
  sheet.append(line(shares, panel.curve, "map"));
  return make("figure", {}, make("figcaption", {}, make("strong", {}, panel.title), ` ${panel.better}`), sheet);
}

function table(value) {
  const head = ["", "this map", "random maps", "better"].map((text) => make("th", { scope: "col" }, text));
  const rows = value.rows.map(([name, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell))),
  );
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

function show() {
  const value = props.value;
  root.replaceChildren();
  delete root.dataset.state;
  if (!value) return;
  if (value.ready === false) return;
  root.append(make("h2", {}, "Can the map be trusted?"));
  if (value.panels) {
    root.append(make("p", { class: "check-verdict" }, `The map of ${value.label}. ${value.verdict}`));
    root.append(make("div", { class: "check-charts" }, ...value.panels.map((panel) => chart(panel, value.shares))));
    const key = make("p", { class: "check-key" }, make("span", { class: "check-swatch" }), "this map");
    key.append(make("span", { class: "check-swatch check-swatch-random" }), "random maps");
    root.append(key, table(value));
    root.dataset.state = "result";
    return;
  }
  const words = "Take away what the map marks, then show only that, and see how the probability moves, beside random maps. Takes some seconds.";
  root.append(make("p", {}, value.error ?? words));
  const button = make("button", { type: "button", class: "check-start" }, value.error ? "Check again" : "Check this map");
  button.addEventListener("click", () => {
    button.disabled = true;
    button.textContent = "Checking…";
    trigger("start");
  });
  root.append(button);
  root.dataset.state = value.error ? "error" : "ready";
}

watch("value", show);
show();
