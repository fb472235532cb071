// Runs as the body of a function of Gradio's. Everything is written as text: labels, notes and file names are not ours.

const { make } = window.camapp;
const root = element.querySelector(".summary");

function classButton(one, explained) {
  const button = make(
    "button",
    { type: "button", "aria-pressed": String(one.index === explained), "data-class": one.index },
    make("span", {}, one.label),
    make("span", { class: "summary-share" }, one.text),
  );
  button.style.setProperty("--share", `${(one.probability * 100).toFixed(2)}%`);
  return make("li", {}, button);
}

function show() {
  const value = props.value;
  const focused = root.querySelector("button:focus")?.dataset.class;
  root.replaceChildren();
  delete root.dataset.token;
  if (!value || !value.classes) return window.camapp.badge("time", "");
  for (const warning of value.warnings) root.append(make("p", { class: "summary-warning" }, warning));
  root.append(
    make(
      "section",
      {},
      make("h2", {}, "What the model sees"),
      make("ol", { class: "summary-classes" }, ...value.classes.map((one) => classButton(one, value.explained))),
    ),
  );
  const facts = value.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);
  root.append(make("section", {}, make("h2", {}, "Facts"), make("dl", { class: "summary-facts" }, ...facts)));
  if (value.notes.length) {
    const notes = value.notes.map((note) => make("li", {}, note));
    root.append(make("section", {}, make("h2", {}, "Notes"), make("ul", { class: "summary-notes" }, ...notes)));
  }
  const link = ["Copy link", () => location.href];
  root.append(make("section", { class: "summary-copies" }, window.camapp.copyBar([link, ...value.copies])));
  if (window.camapp.isOpen("explain")) window.camapp.address(value.address);
  window.camapp.badge("time", value.badge);
  if (focused) root.querySelector(`button[data-class="${focused}"]`)?.focus();
  root.dataset.token = value.token;
}

element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-class]");
  if (button) trigger("explain", { index: Number(button.dataset.class) });
});

watch("value", show);
show();
