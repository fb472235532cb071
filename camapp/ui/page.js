// A click on a searchable list selects its text, so that typing searches; Gradio 6.31 types into the middle of it.
document.addEventListener("click", (event) => {
  if (event.target.matches?.("input[role=combobox]")) event.target.select();
});

// Ctrl+Enter (or Command+Enter) explains again, wherever the focus is.
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") document.querySelector("#run")?.click();
});

// Most browsers show no TIFF or HEIC: say so instead of showing a broken picture. The viewer shows it anyway.
document.addEventListener(
  "error",
  (event) => {
    const image = event.target;
    if (!image.matches?.("#picture img") || image.dataset.replaced) return;
    image.dataset.replaced = "yes";
    image.alt = "The browser has no preview of this file.";
  },
  true,
);

// Gradio 6.31 nests a toast's close button in another button, which screen readers cannot tell apart: keep the inner one.
new MutationObserver(() => {
  for (const header of document.querySelectorAll(".toast-header[role=button]")) {
    header.removeAttribute("role");
    header.removeAttribute("tabindex");
  }
}).observe(document.documentElement, { childList: true, subtree: true });
