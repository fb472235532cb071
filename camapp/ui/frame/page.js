// What belongs to no view: keys, and mends of Gradio's own controls.

// A click on a searchable list selects its text, so that typing searches; Gradio 6.31 types into the middle of it.
document.addEventListener("click", (event) => {
  if (event.target.matches?.("input[role=combobox]")) event.target.select();
});

// Ctrl+Enter (or Command+Enter) runs the open tab again, wherever the focus is; single keys act outside of text fields.
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
    document.querySelector(`#${document.body.dataset.tab}-run`)?.click();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=range]), textarea, select, [contenteditable]")) return;
  const tell = (target, name, detail) => document.querySelector(target)?.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));
  if (/^[1-9]$/.test(event.key)) tell("#navigation .tabs", "camapp:choose", Number(event.key) - 1);
  else if (event.key === "[") tell("#layers .picker", "camapp:step", -1);
  else if (event.key === "]") tell("#layers .picker", "camapp:step", 1);
  else if (event.key === "?") document.querySelector("#keys")?.showModal?.();
  else return;
  event.preventDefault();
});

// Escape closes Gradio's description of the API, as it closes every other thing that opens over the page.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector(".api-docs .backdrop")?.click();
});

// A name too long for the list of models is told whole under the pointer.
document.addEventListener("pointerover", (event) => {
  if (event.target.matches?.("#model input")) event.target.title = event.target.value;
});

// Most browsers show no TIFF or HEIC: say so instead of showing a broken picture. The viewer shows it anyway.
document.addEventListener(
  "error",
  (event) => {
    const image = event.target;
    if (!image.matches?.(".picture-input img") || image.dataset.replaced) return;
    image.dataset.replaced = "yes";
    image.alt = "The browser has no preview of this file.";
  },
  true,
);

new MutationObserver(() => {
  // Gradio 6.31 nests a toast's close button in another button, which screen readers cannot tell apart: keep the inner one.
  for (const header of document.querySelectorAll(".toast-header[role=button]")) {
    header.removeAttribute("role");
    header.removeAttribute("tabindex");
  }
  for (const panel of document.querySelectorAll(".tab-panel:not([role])")) {
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", panel.id.replace(/-panel$/, "-tab"));
  }
}).observe(document.documentElement, { childList: true, subtree: true });
