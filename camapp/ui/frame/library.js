// What the scripts of the views share, as window.camapp; loaded before any of them.

window.camapp = (() => {
  const opened = {}; // callbacks by tab
  const colormaps = {};

  const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

  function filled(node, attributes, children) {
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
      colormaps[name] ??= bytesOf(text);
    }
    return colormaps;
  }

  const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

  const svg = (tag, attributes, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // What draws, at most once a frame, however often it is asked.
  function onceAFrame(draw) {
    let waiting = false;
    return () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw();
      });
    };
  }

  // The pixel of a canvas under the pointer, the canvas being shown at any size.
  function pixelUnder(event, canvas) {
    const box = canvas.getBoundingClientRect();
    const inside = (value, most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
    return [
      inside(((event.clientX - box.left) * canvas.width) / box.width, canvas.width),
      inside(((event.clientY - box.top) * canvas.height) / box.height, canvas.height),
    ];
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  // How far an arrow key goes, across and down: with Shift further. Null for other keys.
  function arrowStep(event, far = 10) {
    const stride = event.shiftKey ? far : 1;
    return ARROWS[event.key]?.map((way) => way * stride) ?? null;
  }

  // A dashed line around what the model saw of a picture, readable on light and dark.
  function outlineSeen(ink, [left, top, right, bottom]) {
    const line = Math.max(1, Math.round(Math.min(ink.canvas.width, ink.canvas.height) / 250));
    ink.lineWidth = line;
    for (const [color, dashes] of [["#000", []], ["#fff", [6 * line, 6 * line]]]) {
      ink.strokeStyle = color;
      ink.setLineDash(dashes);
      ink.strokeRect(left + line / 2, top + line / 2, right - left - line, bottom - top - line);
    }
    ink.setLineDash([]);
  }

  // The 256 colours on a canvas of 256 × 1.
  function drawRamp(canvas, colors) {
    const ink = canvas.getContext("2d");
    const ramp = ink.createImageData(256, 1);
    for (let level = 0; level < 256; level++) ramp.data.set([...colors.subarray(level * 3, level * 3 + 3), 255], level * 4);
    ink.putImageData(ramp, 0, 0);
  }

  const drawing = { svg, onceAFrame, pixelUnder, arrowStep, outlineSeen, drawRamp };
  return { make, isOpen, open, onOpened, pixelsOf, copy, copyBar, addColormaps, colormaps, bytesOf, ...drawing };
})();
