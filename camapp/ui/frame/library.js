// What the scripts of the views share, as window.camapp; loaded before any of them.

window.camapp = (() => {
  const SETTLED = 60; // milliseconds: Gradio 6.31 sets the values of one answer one after the other
  const opened = {}; // callbacks by tab
  const selected = []; // callbacks
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

  // Asks, as soon as a tab is open and nothing changes for a moment, each time that what this returns was called.
  function whenOpen(tab, ask) {
    let [due, timer] = [false, null];
    const look = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (!due || !isOpen(tab)) return;
        due = false;
        ask();
      }, SETTLED);
    };
    onOpened(tab, look);
    return () => {
      due = true;
      look();
    };
  }

  // The selection changed. Told by calls: as a view's value it is lost where that is the same as before, or where a late
  // answer to an older question comes over it.
  const onSelected = (callback) => selected.push(callback);
  const select = () => selected.forEach((callback) => callback());

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

  // The colour maps by name, 256 RGB triples each; they stay for the views that come after.
  function addColormaps(encoded) {
    for (const [name, text] of Object.entries(encoded)) {
      colormaps[name] ??= bytesOf(text);
    }
    return colormaps;
  }

  // Of a map that came as a grey picture, the level of each pixel.
  async function levelsOf(url, width, height) {
    const pixels = await pixelsOf(url, width, height);
    const levels = new Uint8Array(width * height);
    for (let at = 0; at < levels.length; at++) levels[at] = pixels[at * 4];
    return levels;
  }

  const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

  const svg = (tag, attributes, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // The address of a sprite's picture, until URL.revokeObjectURL gives it up.
  const sheetOf = ({ jpeg }) => URL.createObjectURL(new Blob([bytesOf(jpeg)], { type: "image/jpeg" }));

  // One picture of a sprite as a square: `side` pixels long, whatever it is in the sprite.
  function face({ columns, rows }, sheet, place, side, attributes) {
    const node = make("span", attributes);
    node.style.cssText = `width:${side}px;height:${side}px;background-image:url("${sheet}");
      background-size:${columns * side}px ${rows * side}px;background-position:${-(place % columns) * side}px ${-Math.floor(place / columns) * side}px`;
    return node;
  }

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

  // As camapp.images.render.opacities, of each of 256 levels: the cooler a place, the more of the picture shows.
  function opacities(alpha, veil, { signed = false, hideBelow = 0 } = {}) {
    return Float64Array.from({ length: 256 }, (_, level) => {
      const heat = signed ? Math.abs((2 * level) / 255 - 1) : level / 255;
      return heat < hideBelow ? 0 : alpha ** (1 + veil * (1 - heat));
    });
  }

  // A picture with the colours of levels over it: `levels` has one of 0 to 255 for each pixel, and only those within the
  // box are painted. `picture` is RGBA; the canvas has its size.
  function blend(ink, picture, levels, [left, top, right, bottom], weights, colors) {
    const { width, height } = ink.canvas;
    const sheet = ink.createImageData(width, height);
    const out = sheet.data;
    out.set(picture);
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const place = y * width + x;
        const level = levels[place];
        const weight = weights[level];
        for (let channel = 0; channel < 3; channel++) {
          const at = place * 4 + channel;
          out[at] = picture[at] * (1 - weight) + colors[level * 3 + channel] * weight; // stored rounded
        }
      }
    }
    ink.putImageData(sheet, 0, 0);
  }

  // The 256 colours on a canvas of 256 × 1.
  function drawRamp(canvas, colors) {
    const ink = canvas.getContext("2d");
    const ramp = ink.createImageData(256, 1);
    for (let level = 0; level < 256; level++) ramp.data.set([...colors.subarray(level * 3, level * 3 + 3), 255], level * 4);
    ink.putImageData(ramp, 0, 0);
  }

  return {
    ...{ make, svg, copyBar, isOpen, open, whenOpen, onSelected, select },
    ...{ bytesOf, pixelsOf, levelsOf, addColormaps, sheetOf, face },
    ...{ onceAFrame, pixelUnder, arrowStep, opacities, blend, outlineSeen, drawRamp },
  };
})();
