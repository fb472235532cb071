// Runs as the body of a function of Gradio's: `props.value` is {chosen}; from the server also {model, classes}, which
// are taken out of it at once, or {usual}. Everything is written as text.

const { make } = window.camapp;
const MOST_SHOWN = 100;
const part = (name) => element.querySelector(`.classes-${name}`);
const [input, panel, list, hint] = [part("input"), part("panel"), part("list"), part("hint")];
const name = `classes-${Math.random().toString(36).slice(2)}`;
const specials = props.specials.map(([text, number]) => ({ text, number }));
let model = null;
let options = []; // {text, number}: the special choices, then the classes
let active = -1; // which of the rows on show

input.id = name;
list.id = `${name}-list`;
input.setAttribute("aria-controls", list.id);
list.setAttribute("aria-label", part("title").textContent);
part("title").setAttribute("for", name);

const textOf = (chosen) => options.find((one) => one.number === chosen)?.text ?? "";
const rows = () => [...list.children];

function take() {
  const { classes, chosen } = props.value ?? {};
  if (classes) {
    const known = props.value.model === model;
    model = props.value.model;
    options = [...specials, ...classes.map((text, number) => ({ text, number }))];
    props.value = { chosen: chosen ?? (known ? Number(element.dataset.chosen) : specials[0].number) };
  }
  if (props.value.usual) props.value = { chosen: specials[0].number };
  element.dataset.chosen = props.value.chosen;
  input.value = textOf(props.value.chosen);
}

// How well an option fits what is typed, 0 best; null where it does not.
function rank({ text, number }, wanted) {
  const name = text.toLowerCase();
  if (name === wanted || String(number) === wanted) return 0;
  if (!name.includes(wanted)) return null;
  const [words, typed] = [` ${name} `.replace(/[^\p{L}\p{N}]+/gu, " "), wanted.replace(/[^\p{L}\p{N}]+/gu, " ").trim()];
  if (words.includes(` ${typed} `)) return 1;
  if (name.startsWith(wanted)) return 2;
  return words.includes(` ${typed}`) ? 3 : 4;
}

function found(typed) {
  const wanted = typed.trim().toLowerCase();
  if (!wanted) return chosenFirst();
  const ranked = options.map((option) => ({ option, rank: rank(option, wanted) })).filter((one) => one.rank !== null);
  return ranked.sort((a, b) => a.rank - b.rank).map((one) => one.option);
}

// Where there are more classes than are shown, the chosen one comes right after the special choices.
function chosenFirst() {
  const chosen = options.find((one) => one.number === props.value.chosen);
  if (options.indexOf(chosen) < MOST_SHOWN) return options;
  const rest = options.filter((one) => one !== chosen);
  return [...rest.slice(0, specials.length), chosen, ...rest.slice(specials.length)];
}

function show(typed) {
  const all = found(typed);
  list.replaceChildren(
    ...all.slice(0, MOST_SHOWN).map(({ text, number }, at) => {
      const row = make("li", { role: "option", id: `${name}-${at}`, "data-number": number }, make("span", {}, text));
      row.setAttribute("aria-selected", String(number === props.value.chosen));
      if (number >= 0) row.append(make("small", {}, String(number)));
      return row;
    }),
  );
  const more = all.length - MOST_SHOWN;
  hint.textContent = all.length ? `${more.toLocaleString("en")} more: type to find them.` : "No class of that name.";
  hint.hidden = all.length > 0 && more <= 0;
  panel.hidden = false;
  input.setAttribute("aria-expanded", "true");
  const chosen = rows().findIndex((row) => row.dataset.number === String(props.value.chosen));
  point(typed ? 0 : Math.max(0, chosen));
}

function point(at) {
  rows()[active]?.removeAttribute("data-active");
  active = Math.min(rows().length - 1, Math.max(0, at));
  const row = rows()[active];
  if (!row) return input.removeAttribute("aria-activedescendant");
  row.setAttribute("data-active", "");
  input.setAttribute("aria-activedescendant", row.id);
  // of the list only: scrollIntoView would move the page
  const [above, below] = [row.offsetTop, row.offsetTop + row.offsetHeight];
  if (above < list.scrollTop) list.scrollTop = above;
  else if (below > list.scrollTop + list.clientHeight) list.scrollTop = below - list.clientHeight;
}

function close() {
  panel.hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
  input.value = textOf(props.value.chosen);
}

function choose(row) {
  if (!row) return;
  const chosen = Number(row.dataset.number);
  props.value = { chosen };
  element.dataset.chosen = chosen;
  close();
  input.select();
  trigger("pick", { chosen });
}

input.addEventListener("click", () => panel.hidden && show(""));
input.addEventListener("input", () => show(input.value));
input.addEventListener("blur", close);
input.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
  if (step) {
    if (panel.hidden) show("");
    else point(active + step);
  } else if (event.key === "Enter" && !panel.hidden) choose(rows()[active]);
  else if (event.key === "Escape" && !panel.hidden) close();
  else return;
  event.preventDefault();
  event.stopPropagation();
});
list.addEventListener("pointermove", (event) => point(rows().indexOf(event.target.closest("li"))));
list.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays in the text
list.addEventListener("click", (event) => choose(event.target.closest("li")));

watch("value", take);
take();
