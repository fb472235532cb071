// Runs as the body of a function of Gradio's. The elements stay while the text changes: only then is it announced.

const bar = element.querySelector(".status-bar");

// After a run the bar stays in sight for a while, for whoever has scrolled away from it.
const SEEN = 5000;
let seen = null;

function show() {
  const { state, text } = props.value ?? { state: "ready", text: "" };
  if (bar.dataset.state === "running" && state !== "running") {
    bar.dataset.recent = "";
    clearTimeout(seen);
    seen = setTimeout(() => delete bar.dataset.recent, SEEN);
  }
  bar.dataset.state = state;
  bar.querySelector(".status-text").textContent = text;
}

bar.querySelector(".status-stop").addEventListener("click", () => trigger("stop"));
watch("value", show);
show();
