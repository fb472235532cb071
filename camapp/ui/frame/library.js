// What the scripts of the views share, as window.camapp; loaded before any of them.

window.camapp = (() => {
  const opened = {}; // callbacks by tab
  const colormaps = {};

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  const isOpen = (tab) => document.body.dataset.tab === tab;

  function open(tab) {
    document.body.dataset.tab = tab;
    for (const callback of opened[tab] ?? []) callback();
  }

  function onOpened(tab, callback) {
    (opened[tab] ??= []).push(callback);
  }

  async function pixelsOf(url, width, height) {
    const image = new Image();
    image.src = url;
    await image.decode();
    const sheet = document.createElement("canvas");
    sheet.width = width;
    sheet.height = height;
    const ink = sheet.getContext("2d", { willReadFrequently: true });
    ink.drawImage(image, 0, 0, width, height);
    return ink.getImageData(0, 0, width, height).data;
  }

  // A page on a plain http address of a network has no navigator.clipboard.
  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = make("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  // Buttons that copy a text each, or what a function gives then: [["Copy Python", "import camapp..."], ...]
  function copyBar(texts) {
    const told = make("span", { class: "copy-told", role: "status" });
    const buttons = texts.map(([label, text]) => {
      const fixed = typeof text === "string";
      const button = make("button", { type: "button", title: fixed ? text : undefined }, label);
      button.addEventListener("click", async () => {
        await copy(fixed ? text : text());
        told.textContent = "Copied.";
        setTimeout(() => (told.textContent = ""), 2500);
      });
      return button;
    });
    return make("div", { class: "copy-bar" }, ...buttons, told);
  }

  function addColormaps(encoded) {
    for (const [name, text] of Object.entries(encoded)) {
      colormaps[name] ??= Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    }
    return colormaps;
  }

  return { make, isOpen, open, onOpened, pixelsOf, copy, copyBar, addColormaps, colormaps };
})();
