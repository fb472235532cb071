// Runs as the body of a function of Gradio's. The elements stay while the text changes: only then is it announced.

const bar = element.querySelector(".status-bar");

function show() {
  const { state, text } = props.value ?? { state: "ready", text: "" };
  bar.dataset.state = state;
  bar.querySelector(".status-text").textContent = text;
}

bar.querySelector(".status-stop").addEventListener("click", () => trigger("stop"));
watch("value", show);
show();
