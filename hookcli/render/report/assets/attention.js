"use strict";
// The attention of an image: the reader chooses a call and a patch, and sees the map of every head.
{
  const FINEST = 32;  // patches in a row; with more of them, their lines would hide the image

  function element(kind, name, ...inside) {
    const made = document.createElement(kind);
    made.className = name;
    made.append(...inside);
    return made;
  }

  function picture(name, src) {
    const made = element("img", name);
    Object.assign(made, { alt: "", src });
    return made;
  }

  function attend(box) {
    if (box.hasChildNodes()) return;
    const calls = JSON.parse(document.querySelector(`script[data-attention="${box.dataset.image}"]`).textContent);
    const seen = seenOf(box.dataset.image);
    box.append(byId("attending").content.cloneNode(true));
    const part = (name) => box.querySelector(`.${name}`);
    const which = part("which"), picked = part("picked"), photo = part("photo");
    let call = 0, point = null;  // from the left and the top, as shares of the image; null for the class token
    let maps = null;  // the maps on the page

    which.append(...calls.map((each, index) => new Option(each.call, index)));
    which.addEventListener("change", () => showCall(Number(which.value)));
    part("back").addEventListener("click", () => showCall(call - 1));
    part("on").addEventListener("click", () => showCall(call + 1));
    if (seen) {
      photo.addEventListener("load", () => box.style.setProperty("--ratio", `${photo.naturalWidth} / ${photo.naturalHeight}`));
      photo.src = seen;
    } else photo.remove();

    function showCall(index) {
      call = index;
      which.value = index;
      part("back").disabled = index === 0;
      part("on").disabled = index === calls.length - 1;
      const { drawn, maps: own } = calls[index];
      part("drawn").hidden = drawn === null;
      showDrawn();
      part("trouble").hidden = true;
      if (own === null) {
        part("drawn").open = true;
        return takeAway("No maps of patches, only the picture below: the tokens of this call form no patches of one picture.");
      }
      const whole = new Image();
      whole.addEventListener("load", () => call === index && take(own, whole));
      whole.addEventListener("error", () => call === index && takeAway(`The maps of this call are missing or damaged: ${own.file}`));
      whole.src = own.src;
    }

    function showDrawn() {  // called when the picture becomes visible
      const { drawn } = calls[call];
      if (part("drawn").open && drawn !== null) part("drawn").querySelector("img").src = drawn;
    }
    part("drawn").addEventListener("toggle", showDrawn);

    function takeAway(reason) {
      maps = null;
      part("halves").hidden = true;
      part("trouble").hidden = false;
      part("trouble").textContent = reason;
    }

    function take(own, whole) {
      const [rows, columns] = own.query_grid, [height, width] = own.map_grid;
      if (whole.naturalWidth !== columns * width || whole.naturalHeight !== (rows + own.has_class_token) * own.heads * height) {
        return takeAway(`The maps of this call have another size than the run says: ${own.file}`);
      }
      maps = own;
      part("token").hidden = !own.has_class_token;
      part("halves").hidden = false;
      if (!photo.naturalWidth) box.style.setProperty("--ratio", `${own.patch_grid[1]} / ${own.patch_grid[0]}`);
      const [down, across] = Math.max(...own.patch_grid) <= FINEST ? own.patch_grid : own.query_grid;
      part("lines").style.backgroundSize = `${100 / across}% ${100 / down}%`;
      part("thinned").textContent = own.is_thinned ? `Thinned for this page: ${rows} x ${columns} of ${own.patch_grid.join(" x ")} patches have maps, averaged down to ${height} x ${width}. --save attention keeps all.` : "";
      const entropy = calls[call].entropy;
      part("heads").replaceChildren(...Array.from({ length: own.heads }, (_, head) => {
        const map = picture("map", own.src);
        Object.assign(map.style, { width: `${100 * columns}%`, height: `${100 * (rows + own.has_class_token) * own.heads}%` });
        const tile = element("div", "tile", ...(seen ? [picture("photo", seen)] : []), map, element("div", "frame"));
        tile.setAttribute("role", "img");
        const mean = typeof entropy[head] === "number" ? element("span", "dim", `, entropy ${entropy[head].toFixed(2)}`) : "";
        return element("figure", "", tile, element("figcaption", "", `head ${head}`, mean));
      }));
      show();
    }

    const isToken = () => point === null && maps.has_class_token;
    const cells = () => maps.query_grid.map((count, axis) => Math.min(Math.floor((point ?? [0.5, 0.5])[1 - axis] * count), count - 1));

    function show() {
      const [row, column] = isToken() ? [maps.query_grid[0], 0] : cells();
      const who = isToken() ? "the class token" : "the patch";
      for (const [head, tile] of box.querySelectorAll(".tile").entries()) tile.setAttribute("aria-label", `What ${who} looks at, head ${head}`);
      part("token").ariaPressed = isToken();
      // the patch in the middle of the cell's patches
      const [down, across] = [row, column].map((cell, axis) => Math.floor((2 * cell + 1) * maps.patch_grid[axis] / (2 * maps.query_grid[axis])));
      const [high, wide] = maps.patch_grid;
      for (const frame of box.querySelectorAll(".frame")) {
        frame.hidden = isToken();
        Object.assign(frame.style, { left: `${100 * across / wide}%`, top: `${100 * down / high}%`, width: `${100 / wide}%`, height: `${100 / high}%` });
      }
      for (const [head, map] of box.querySelectorAll(".map").entries()) {
        Object.assign(map.style, { left: `${-100 * column}%`, top: `${-100 * (row * maps.heads + head)}%` });
      }
      part("where").textContent = isToken() ? "class token" : `patch row ${down + 1}, column ${across + 1} of ${high} x ${wide}`;
    }

    part("token").addEventListener("click", () => {
      point = null;
      show();
    });
    picked.addEventListener("click", (event) => {
      const { left, top, width, height } = picked.getBoundingClientRect();
      if (!maps || !width || !height) return;
      point = [(event.clientX - left) / width, (event.clientY - top) / height].map((share) => Math.min(Math.max(share, 0), 1));
      show();
    });
    picked.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!maps || !step) return;
      event.preventDefault();
      const next = cells().map((cell, axis) => Math.min(Math.max(cell + step[axis], 0), maps.query_grid[axis] - 1));
      point = [1, 0].map((axis) => (next[axis] + 0.5) / maps.query_grid[axis]);
      show();
    });
    showCall(0);
  }

  for (const box of document.querySelectorAll(".attend")) attend(box);
  document.addEventListener("imageshown", (event) => {
    for (const box of event.detail.inside.querySelectorAll(".attend")) attend(box);
  });
}
