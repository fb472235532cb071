// Runs as the body of a function of Gradio's. `props.value` is the name of the open tab.

const tabs = [...element.querySelectorAll("[role=tab]")];
const names = tabs.map((tab) => tab.dataset.tab);

function show() {
  const name = names.includes(props.value) ? props.value : names[0];
  for (const tab of tabs) {
    const selected = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    if (selected) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  window.camapp.open(name);
}

function choose(tab, focus = false) {
  if (focus) tab.focus();
  if (props.value === tab.dataset.tab) return;
  props.value = tab.dataset.tab;
  told();
}

element.addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) choose(tab);
});
element.addEventListener("keydown", (event) => {
  const at = tabs.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (at < 0 || next === undefined) return;
  event.preventDefault();
  choose(tabs[(next + tabs.length) % tabs.length], true);
});
element.addEventListener("camapp:choose", (event) => tabs[event.detail] && choose(tabs[event.detail]));

// Not at first: the address is still to be read then.
function told() {
  show();
  window.camapp.address({ tab: props.value });
}

watch("value", told);
show();
