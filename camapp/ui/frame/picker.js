// Runs as the body of a function of Gradio's: `props.value` is {chosen}; from the server also {options, most}, which are
// taken out of it at once: Gradio 6.31 copies and sends all of it with every event. Everything is written as text.

const { make } = window.camapp;
const part = (name) => element.querySelector(`.picker-${name}`);
const [button, panel, search, list] = [part("button"), part("panel"), part("search"), part("options")];
const title = part("title");
const name = `picker-${Math.random().toString(36).slice(2)}`;

let options = [];
let most = 1;

const several = () => most > 1;
const inputs = () => [...list.querySelectorAll("input")];
const optionOf = (value) => options.find((one) => one.value === value);

function take() {
  const { options: given, chosen } = props.value;
  if (given) {
    options = given;
    most = props.value.most;
    props.value = { chosen };
  }
  draw();
}

function entry(option) {
  const box = make("input", { type: several() ? "checkbox" : "radio", name, value: option.value });
  box.checked = props.value.chosen.includes(option.value);
  const line = make("span", { class: "picker-line" }, make("span", { class: "picker-label" }, option.label));
  if (option.badge) line.append(make("span", { class: "picker-badge" }, option.badge));
  const text = make("span", { class: "picker-text" }, line);
  if (option.detail) text.append(make("small", {}, option.detail));
  return make("label", { class: "picker-option" }, box, text);
}

function draw() {
  list.replaceChildren();
  let group = null;
  for (const option of options) {
    if (!group || group.dataset.group !== option.group) {
      group = make("fieldset", { "data-group": option.group });
      group.append(make("legend", { class: option.group ? "" : "picker-hidden" }, option.group || title.textContent));
      list.append(group);
    }
    group.append(entry(option));
  }
  search.hidden = options.length < 10;
  search.setAttribute("aria-label", `Search: ${title.textContent}`);
  part("hint").textContent = several() ? `Several may be ticked, up to ${most}.` : "";
  part("hint").hidden = !several();
  filter();
  say();
}

function say() {
  const labels = props.value.chosen.map((value) => optionOf(value)?.label ?? value);
  const only = props.value.chosen.length === 1 ? optionOf(props.value.chosen[0]) : null;
  const brief = only?.detail && only.detail.length < 40 ? ` · ${only.detail.split(" · ")[0]}` : "";
  part("shown").textContent = (labels.join(" + ") || "None") + brief;
  button.setAttribute("aria-label", `${title.textContent}: ${labels.join(", ") || "none"}`);
  for (const box of inputs()) {
    box.checked = props.value.chosen.includes(box.value);
    box.disabled = several() && !box.checked && props.value.chosen.length >= most;
  }
  element.dataset.chosen = props.value.chosen.join(" ");
}

function filter() {
  const wanted = search.value.trim().toLowerCase();
  for (const group of list.children) {
    let any = false;
    for (const line of group.querySelectorAll("label")) {
      line.hidden = !line.textContent.toLowerCase().includes(wanted);
      any ||= !line.hidden;
    }
    group.hidden = !any;
  }
}

function open(shown) {
  if (panel.hidden === !shown) return;
  panel.hidden = !shown;
  button.setAttribute("aria-expanded", String(shown));
  if (!shown) return;
  search.value = "";
  filter();
  (inputs().find((box) => box.checked) ?? inputs()[0])?.focus();
  list.querySelector("input:checked")?.closest("label").scrollIntoView({ block: "nearest" });
}

function pick(chosen) {
  props.value = { chosen };
  say();
  trigger("pick", { chosen });
}

function step(by) {
  const values = options.map((one) => one.value);
  const at = values.indexOf(props.value.chosen[0]) + by;
  if (values[at] !== undefined) pick([values[at]]);
}

button.addEventListener("click", () => open(panel.hidden));
search.addEventListener("input", filter);
list.addEventListener("change", (event) => {
  const box = event.target;
  if (!several()) return pick([box.value]);
  const chosen = options.map((one) => one.value).filter((value) =>
    value === box.value ? box.checked : props.value.chosen.includes(value),
  );
  if (chosen.length) pick(chosen);
  else box.checked = true; // one at least
});
list.addEventListener("click", (event) => {
  if (!several() && event.target.matches("label *, label") && event.detail > 0) {
    open(false);
    button.focus();
  }
});
element.addEventListener("keydown", (event) => {
  const leaves = event.key === "Escape" || (event.key === "Enter" && !several() && event.target !== button);
  if (panel.hidden || !leaves) return;
  if (event.key === "Enter" && event.target === search) list.querySelector("label:not([hidden]) input")?.click();
  event.preventDefault();
  event.stopPropagation();
  open(false);
  button.focus();
});
// Letters typed on the list search it.
list.addEventListener("keydown", (event) => {
  if (search.hidden || event.key.length !== 1 || event.key === " " || event.ctrlKey || event.metaKey || event.altKey) return;
  search.focus();
});
element.addEventListener("focusout", (event) => {
  if (event.relatedTarget && !element.contains(event.relatedTarget)) open(false);
});
document.addEventListener("pointerdown", (event) => {
  if (!element.contains(event.target)) open(false);
});
element.addEventListener("camapp:step", (event) => step(event.detail));

watch("value", take);
take();
