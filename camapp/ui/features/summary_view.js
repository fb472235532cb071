// Runs as the body of a function of Gradio's. Everything is written as text: names of files and labels are not ours.

const { make, copyBar } = window.camapp;
const root = element.querySelector(".features");
const result = element.querySelector(".features-result");
const empty = { title: element.querySelector(".features-empty-title"), text: element.querySelector(".features-empty-text") };
const invitation = { title: empty.title.textContent, text: empty.text.textContent };

const COLUMNS = [
  ["Layer", ""],
  ["Taken from", ""],
  ["Output", "number"],
  ["Pooled by", ""],
  ["Values a picture", "number"],
  ["Mean norm (L2)", "number"],
];

function layerTable(layers) {
  const head = make("tr", {}, ...COLUMNS.map(([title, kind]) => make("th", { scope: "col", class: kind }, title)));
  const rows = layers.map((layer) => {
    const norm = make("span", {}, layer.norm, make("small", {}, ` ± ${layer.deviation}`));
    const cells = [layer.from, layer.shape, layer.pool, layer.size, norm];
    const kinds = COLUMNS.slice(1).map(([, kind]) => kind);
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, layer.name),
      ...cells.map((cell, place) => make("td", { class: kinds[place] }, cell)),
    );
  });
  const table = make("table", {}, make("caption", {}, "Layers"), make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "features-scroll", tabindex: "0", role: "region", "aria-label": "Table of layers" }, table);
}

function failureList(failures) {
  if (!failures.length) return "";
  const count = failures.length === 1 ? "1 picture was left out" : `${failures.length} pictures were left out`;
  const lines = failures.map(([name, reason]) => make("li", {}, make("b", {}, name), ` ${reason}`));
  const details = make("details", { class: "features-failures" }, make("summary", {}, count), make("ul", {}, ...lines));
  details.open = failures.length <= 3;
  return details;
}

function downloadLink(one, files) {
  if (one.missing) return make("span", { class: "features-missing" }, one.title, make("small", {}, one.missing));
  const href = `result/${files}/${encodeURIComponent(one.file)}`;
  return make("a", { href, download: "", "data-format": one.format, title: one.file }, one.title);
}

function show() {
  const value = props.value;
  result.replaceChildren();
  delete root.dataset.token;
  root.dataset.state = value?.layers ? "result" : value?.error ? "error" : "empty";
  empty.title.textContent = value?.error ? "No features" : invitation.title;
  empty.text.textContent = value?.error ?? invitation.text;
  if (!value?.layers) return;
  result.append(
    make("h2", {}, value.title, make("small", {}, ` ${value.model}, ${value.seconds}`)),
    failureList(value.failures),
    layerTable(value.layers),
    make("h3", {}, "Download"),
    make("nav", { class: "features-downloads", "aria-label": "Downloads" }, ...value.downloads.map((one) => downloadLink(one, value.files))),
    copyBar([["Copy Python", value.code.python], ["Copy command", value.code.command]]),
  );
  root.dataset.token = value.token;
}

watch("value", show);
show();
