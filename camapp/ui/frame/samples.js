// Runs as the body of a function of Gradio's. A click on a sample asks for it.

element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-sample]");
  if (button) trigger("pick", { sample: button.dataset.sample });
});
