"use strict";
// Several images of a run: their pictures in the panel, and the images that fire a channel most.
{
  const { tiles, findings, element, showWhole, openImage } = contact;
  const TOUCHED = 26;  // pixels of a channel of a sheet, on a phone

  document.addEventListener("imageshown", ({ detail: { inside, index } }) => {
    inside.querySelector(".pair").lastElementChild.append(...findings[index].map(findingOf));
    const over = document.querySelector(`main [data-over="${index}"]`)?.cloneNode(true);
    if (over) inside.querySelector(".pair").after(Object.assign(over, { hidden: false, className: "heats" }));
    for (const picture of over?.querySelectorAll("img") ?? []) frame(picture, index);
    addPictures(inside.querySelector(".maps"), index);
    for (const picture of inside.querySelectorAll("img:not(.large img)")) picture.addEventListener("error", () => sayMissing(picture));
  });

  function findingOf(number) {
    const [rule, sentence] = document.querySelector(`#findings li[data-number="${number}"]`).cloneNode(true).children;
    for (const link of sentence.querySelectorAll("a, button")) link.remove();
    return element("p", {}, rule, " ", sentence);
  }

  // One sheet for all layers, or a picture for each.
  function addPictures(box, index) {
    const grids = [...picturesOf(index).values()];
    const calls = new Map(grids.map((grid) => [grid.src, grid.call]).reverse());  // the first call of each picture
    const drawn = [...new Set(grids.map((grid) => grid.src))];
    box.classList.toggle("sheet", drawn.length === 1);
    for (const src of drawn) {
      const call = calls.get(src), { size } = picturesOf(index).get(call);
      const alt = drawn.length === 1 && grids.length > 1 ? "Feature maps of all layers" : `Feature maps of ${data.calls[call]}`;
      const picture = element("img", { src, alt, width: size[0], height: size[1], loading: "lazy" });
      if (drawn.length === 1) {
        const smallest = Math.min(...grids.map(({ places }) => places?.width ?? Infinity));
        picture.style.setProperty("--least", `${Math.ceil(TOUCHED * size[0] / smallest)}px`);
      }
      const button = element("button", { type: "button", className: "grid" }, picture);
      button.addEventListener("click", (event) => {
        const hit = channelUnder(index, event, picture);
        openViewer(index, hit?.call ?? call, hit?.channel);
      });
      box.append(button);
    }
    if (!drawn.length) {
      box.classList.add("none");
      box.textContent = "No feature maps were drawn of this image; --grids sheet draws those of every image.";
    }
  }

  function channelUnder(index, event, picture) {
    const { src } = picture;
    for (const grid of picturesOf(index).values()) {
      const tile = new URL(grid.src, document.baseURI).href === src ? tileAt(grid, event, picture) : -1;
      if (tile >= 0) return { call: grid.call, channel: grid.channels[tile] };
    }
    return null;
  }

  function sayMissing(picture) {
    const file = picture.getAttribute("src");
    (picture.closest("button") ?? picture).replaceWith(element("p", { className: "dim", textContent: `This picture is not beside the page: ${file}` }));
  }

  // The images that fire a channel most: a channel that the reader types, or conspicuous channels.
  const chosen = byId("top-layer"), typed = byId("top-channel");
  function openChannel() {
    const named = readAddress();
    if (!isInGallery(named)) return;
    showLayer(gallery.findIndex(([call]) => call === named.call), named.channel);
    byId("top-images").scrollIntoView();
  }

  function showLayer(index, channel = "") {
    if (!gallery[index]) return;
    chosen.value = index;
    typed.value = channel;
    typed.max = data.channels[gallery[index][0]] - 1;
    byId("top-before").ariaDisabled = index === 0;
    byId("top-next").ariaDisabled = index === gallery.length - 1;
    keepChannel();
    showChannels();
  }

  function keepChannel() {  // in the address
    const [call] = gallery[chosen.value], before = hashOfGallery;
    hashOfGallery = typed.value === "" ? "" : addressOf(call, typed.value);
    if (hashOfGallery || location.hash === before && before) history.replaceState(null, "", hashOfGallery || location.pathname + location.search);
  }

  async function showChannels() {
    const layer = gallery[chosen.value], asked = typed.value;
    const { rows, said } = asked === "" ? standingOut(layer) : await withNumber(layer, Number(asked));
    if (typed.value !== asked || gallery[chosen.value] !== layer) return;
    byId("top-said").textContent = said;
    byId("top-channels").replaceChildren(...rows.map(([channel, images]) => {
      const list = element("ol", {}, ...images.map(([image, value]) => element("li", {}, firing(image, value, layer[0], channel))));
      return element("div", { className: "firing" }, element("h3", { textContent: `channel ${channel}` }), list);
    }));
  }

  function standingOut([, rows]) {
    return { rows, said: rows.length ? "" : "No channel of this layer fires." };
  }

  async function withNumber([call, strongest], channel) {
    const count = data.channels[call], known = strongest.find(([each]) => each === channel);
    if (known) return { rows: [known], said: "" };
    if (!Number.isInteger(channel) || channel < 0 || channel >= count) return { rows: [], said: countedChannels(call) };
    const ranked = (await readRanked()).get(call);
    if (!ranked) return { rows: [], said: `This page does not have channel ${channel}, because the run has so many: top_images.csv has it, and --channels ${channel} in the command shows it here.` };
    const images = ranked.pairs.slice(channel * ranked.each, (channel + 1) * ranked.each).filter(([image]) => image !== null);
    const more = ranked.each < (strongest[0]?.[1].length ?? 0) ? "top_images.csv has more images of this channel." : "";
    return { rows: [[channel, images]], said: images.length ? more : "No image fires this channel." };
  }

  // The images that fire every channel most; unpacked when the first number is typed.
  let reading = null;
  function readRanked() {
    reading ??= inflate([bytesOf(byId("ranked").textContent)]).json().then(({ calls, others }) => new Map(calls.map(([call, each, positions, values]) => (
      [call, { each, pairs: positions.map((position, index) => [others[position - tiles.length] ?? position, values[index]]) }]
    ))));
    return reading;
  }

  function firing(image, value, call, channel) {
    const shown = element("span", { className: "value", textContent: value === null ? "not finite" : String(value) });
    if (typeof image === "string") return element("span", {}, element("span", { className: "chip", textContent: image }), shown);
    const { title } = tiles[image].firstElementChild;
    showWhole(tiles[image]);
    const name = element("span", { className: "spoken", textContent: title });
    const button = element("button", { type: "button", title }, tiles[image].querySelector(".thumb").cloneNode(), name, shown);
    button.addEventListener("click", () => {
      keepChannel();
      const isDrawn = picturesOf(image).get(call)?.channels.includes(channel);
      if (isDrawn) openViewer(image, call, channel);
      else openImage(image);
    });
    return button;
  }

  if (chosen) {
    chosen.append(...gallery.map(([call], index) => new Option(data.calls[call], index)));
    chosen.addEventListener("change", () => showLayer(Number(chosen.value)));
    byId("top-before").addEventListener("click", () => showLayer(Number(chosen.value) - 1));
    byId("top-next").addEventListener("click", () => showLayer(Number(chosen.value) + 1));
    let keeping = 0;  // browsers limit how often a page may change the address
    typed.addEventListener("input", () => {
      showChannels();
      clearTimeout(keeping);
      keeping = setTimeout(keepChannel, 150);
    });
    showLayer(0);
    window.addEventListener("hashchange", openChannel);
    openChannel();
  }
}
