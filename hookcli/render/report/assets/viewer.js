// The viewer: a channel of a layer, large. openViewer(imageIndex, call, channel) opens it with the
// position of an image in the page, the position of a call in data.calls, and the number of a
// channel, or undefined for the first drawn channel.
const viewer = byId("viewer");
let layer = 0, tile = 0, shown = 0;  // of the image in the viewer
const isOneFile = document.querySelector('img[src^="data:"]') !== null;
let hashBefore = "";  // the hash in the address before the viewer opened
let hashOfGallery = "";  // the hash of the channel that the reader typed there
let undrawn;  // the channel that the address names, if its layer has no picture
for (const article of articles) {
  article.querySelector("button.grid")?.addEventListener("click", (event) => open(image, Number(article.dataset.call), event));
}
sheet?.addEventListener("click", (event) => open(image, picturesOf(image).keys().next().value, event));

function open(index, call, event) {
  shown = index; layer = call; tile = 0; undrawn = undefined;
  choose(event, event.currentTarget.firstElementChild);
  showViewer();
}

function openViewer(imageIndex, call, channel) {
  shown = imageIndex; layer = call;
  const grid = gridOf(call);
  tile = Math.max(0, grid?.channels.indexOf(channel) ?? 0);
  undrawn = grid ? undefined : channel;
  showViewer();
  if (grid && channel !== undefined && !grid.channels.includes(channel)) byId("pointed").textContent = `${whyNotDrawn(call, channel)} This is the first that was drawn.`;
}

const countedChannels = (call) => `${data.calls[call]} has ${data.channels[call]} channels: 0 to ${data.channels[call] - 1}.`;

function whyNotDrawn(call, channel) {
  if (channel >= data.channels[call]) return countedChannels(call);
  return `Channel ${channel} was not drawn: --channels all in the command draws every one.`;
}

function whyNoPicture() {
  if (picturesOf(shown).size) return "No picture of this layer.";
  return `No feature maps were drawn of this image: add --grids sheet${undrawn === undefined ? "" : ` --channels ${undrawn}`} to the command.`;
}

function showViewer() {
  if (!viewer.open) {
    hashBefore = hashOfGallery || location.hash.split("/")[0];
    viewer.showModal();
    viewer.focus();
  }
  show();
}

// The only layer of a page: its channels as large as the window allows, from the picture of its maps.
const wall = document.querySelector(".large button.grid");
async function buildWall() {
  const grid = picturesOf(image).get(Number(wall.closest("article").dataset.call)), { maps } = grid ?? {};
  wall.parentElement.classList.toggle("walled", Boolean(maps));
  for (const old of wall.querySelectorAll("span")) old.remove();
  if (!maps) return;
  const [height, width] = maps.size, stages = grid.channels.map((channel, index) => {
    const stage = Object.assign(document.createElement("canvas"), { width, height }), tile = document.createElement("span");
    tile.dataset.tile = index;
    tile.append(channel, stage);
    return stage;
  });
  wall.append(...stages.map((stage) => stage.parentElement));
  byId("walled").textContent = `${describeOrder(grid)}, each ${sizeOf(maps)}; ${describeColours(maps)}`;
  const drawn = await load(maps.src);
  if (drawn?.naturalWidth !== maps.columns * width) wall.parentElement.classList.remove("walled");
  else for (const [index, stage] of stages.entries()) stage.getContext("2d").drawImage(drawn, index % maps.columns * width, Math.floor(index / maps.columns) * height, width, height, 0, 0, width, height);
}

function describeOrder({ call, channels, spread }) {
  const falls = (values) => values?.every((value, index) => !index || value <= values[index - 1]);
  const count = channels.length < data.channels[call] ? `${channels.length} of ${data.channels[call]}` : channels.length;
  return `${count} channels${falls(spread) ? ", the largest std first" : ""}`;
}

function describeColours({ range, signed }) {
  const ends = range ? `${figure(range[0])} to ${figure(range[1])}` : "each channel's own range";
  return `colours from low to high: ${ends}${signed ? ", with zero in the middle" : ""}`;
}

const gridOf = (call) => picturesOf(shown).get(call);

// The layer and tile under the pointer; a sheet has tiles of many layers.
function choose(event, picture) {
  const mine = gridOf(layer);
  for (const grid of mine ? [mine, ...picturesOf(shown).values()] : []) {
    const index = grid.src === mine.src ? tileAt(grid, event, picture) : -1;
    if (index >= 0) { layer = grid.call; tile = index; return true; }
  }
  return false;
}

function tileAt(grid, event, picture) {
  const own = event.target.closest("[data-tile]");  // of the wall of one layer
  if (own) return Number(own.dataset.tile);
  if (!grid.places) return -1;
  const box = picture.getBoundingClientRect();
  const x = (event.clientX - box.left) * grid.size[0] / box.width - grid.places.left;
  const y = (event.clientY - box.top) * grid.size[1] / box.height - grid.places.top;
  const column = Math.floor(x / grid.places.step_x), row = Math.floor(y / grid.places.step_y);
  const index = row * grid.places.columns + column;
  return column >= 0 && column < grid.places.columns && row >= 0 && index < grid.channels.length ? index : -1;
}

// The upper left corner of a tile in the picture of its grid.
function cornerOf({ places }, index) {
  return { x: places.left + (index % places.columns) * places.step_x, y: places.top + Math.floor(index / places.columns) * places.step_y };
}

const figure = (value) => (value === null ? "not finite" : Number(value.toPrecision(4)).toString());

function show() {
  const grid = gridOf(layer);
  byId("viewer-title").textContent = data.calls[layer];
  byId("viewer-note").textContent = [data.kinds[layer], byId(`image-${shown}`)?.title].filter(Boolean).join(", ");
  byId("pointed").textContent = "";
  viewer.classList.toggle("flat", !grid?.places);
  byId("whole").hidden = !grid;
  showHeat();
  byId("mark").hidden = !grid?.places;
  if (grid) byId("whole").src = grid.src;
  if (!grid?.places) {
    byId("facts").textContent = grid ? "Bars: this layer has no spatial form." : whyNoPicture();
    keepAddress();
    return;
  }
  tile = Math.min(tile, grid.channels.length - 1);
  const figures = grid.low ? `: min ${figure(grid.low[tile])}, max ${figure(grid.high[tile])}, mean ${figure(grid.mean[tile])}, std ${figure(grid.spread[tile])}` : "";  // a page of more than 200 images has none
  byId("facts").textContent = `channel ${grid.channels[tile]}${figures}`;
  showChoice(grid);
  showScale(grid);
  draw(grid);
  const { x, y } = cornerOf(grid, tile), { width, height } = grid.places;
  Object.assign(byId("mark").style, { left: `${100 * x / grid.size[0]}%`, top: `${100 * y / grid.size[1]}%`, width: `${100 * width / grid.size[0]}%`, height: `${100 * height / grid.size[1]}%` });
  keepAddress();
}

// The picture of the layer over the image, which the page has beside the image.
function showHeat() {
  const known = document.querySelector(`main [data-over="${shown}"] [data-heat="${layer}"]`);
  byId("heat").hidden = !known;
  if (known) Object.assign(byId("heat"), { src: known.getAttribute("src"), alt: known.alt });
}

function showChoice(grid) {
  const channel = byId("channel");
  if (channel.dataset.of !== `${shown} ${layer}`) {
    channel.replaceChildren(...grid.channels.map((number, index) => new Option(number, index)));
    channel.dataset.of = `${shown} ${layer}`;
  }
  channel.value = tile;
  byId("before").ariaDisabled = tile === 0;  // a disabled button would lose the focus
  byId("after").ariaDisabled = tile === grid.channels.length - 1;
}

// The values at the two ends of the colours; null if unknown.
function rangeOf({ maps, low, high }) {
  if (!maps) return null;
  const [bottom, top] = maps.range ?? [low?.[tile] ?? null, high?.[tile] ?? null];
  if (bottom === null || top === null) return null;
  const largest = Math.max(-bottom, top);
  return maps.signed ? [-largest, largest] : [bottom, top];
}

function showScale(grid) {
  const range = rangeOf(grid);
  byId("scale").hidden = !range || !data.colours.length;
  if (!range) return;
  byId("ramp").style.background = `linear-gradient(to top, ${data.colours.join()})`;
  byId("scale-top").textContent = figure(range[1]);
  byId("scale-middle").textContent = figure((range[0] + range[1]) / 2);
  byId("scale-bottom").textContent = figure(range[0]);
}

function sizeOf({ own, size }) {
  return own.join(" x ") + (own.join() === size.join() ? "" : `, averaged down to ${size.join(" x ")}`);
}

// The channel on the stage: at the resolution of its layer, or as in the grid.
async function draw(grid) {
  const mine = [shown, layer, tile], stage = byId("stage-tile");
  const maps = grid.maps && await load(grid.maps.src);
  const isWhole = maps?.naturalWidth === grid.maps?.columns * grid.maps?.size[1];
  const drawn = isWhole ? maps : await load(grid.src);
  if (mine.join() !== [shown, layer, tile].join()) return;
  let { width, height } = grid.places, { x, y } = cornerOf(grid, tile);
  byId("size").textContent = isWhole ? sizeOf(grid.maps) : "";
  if (isWhole) {
    [height, width] = grid.maps.size;
    x = (tile % grid.maps.columns) * width;
    y = Math.floor(tile / grid.maps.columns) * height;
  }
  Object.assign(stage, { width, height });  // and empty
  if (drawn) stage.getContext("2d").drawImage(drawn, x, y, width, height, 0, 0, width, height);
  stage.setAttribute("aria-label", `Channel ${grid.channels[tile]}, enlarged`);
  stage.parentElement.style.setProperty("--wide", width / height);
  byId("stage-image").src = seenOf(shown);
  const over = byId("overlay").checked && byId("stage-image").getAttribute("src") !== "";
  stage.parentElement.classList.toggle("over", over);
  stage.style.opacity = over ? byId("strength").value / 100 : 1;
}

const loaded = new Map();
function load(src) {
  if (!loaded.has(src)) {
    const picture = new Image();
    picture.src = src;
    loaded.set(src, picture.decode().then(() => picture, () => null));
  }
  return loaded.get(src);
}

// The levels of an embedded picture, by column and row. They are the indices of its palette; a canvas
// would only give colours. The page may not read a file beside it.
const levels = new Map();
function levelsOf(src) {
  if (!levels.has(src)) levels.set(src, readLevels(src).catch(() => null));
  return levels.get(src);
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
const inflate = (parts) => new Response(new Blob(parts).stream().pipeThrough(new DecompressionStream("deflate")));

async function readLevels(src) {
  const [head, text] = src.split(",");
  if (!/^data:image.png;base64$/.test(head)) return null;
  const bytes = bytesOf(text);
  const view = new DataView(bytes.buffer), parts = [];
  const width = view.getUint32(16), depth = bytes[24], kind = bytes[25];
  if (depth !== 8 || kind !== 3) return null;  // a byte a pixel, indices of a palette
  for (let at = 8; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
    const name = String.fromCharCode(...bytes.subarray(at + 4, at + 8));
    if (name === "IDAT") parts.push(bytes.subarray(at + 8, at + 8 + view.getUint32(at)));
  }
  const rows = new Uint8Array(await inflate(parts).arrayBuffer());
  const start = (row) => row * (width + 1);  // the byte before a row's pixels is its filter: 0 means none
  return (column, row) => (rows[start(row)] === 0 ? rows[start(row) + 1 + column] : undefined);
}

const MOST = 254;  // the level of the largest value; the next level means not finite
async function point(event) {
  const grid = gridOf(layer);
  if (!grid?.maps) return;
  const { maps } = grid, [height, width] = maps.size, box = byId("stage-tile").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / box.width * width), row = Math.floor((event.clientY - box.top) / box.height * height);
  if (column < 0 || column >= width || row < 0 || row >= height) return;
  const mine = [shown, layer, tile], at = tile, place = `${spanOf("row", row, maps, 0)}, ${spanOf("column", column, maps, 1)}`;
  const level = (await levelsOf(maps.src))?.((at % maps.columns) * width + column, Math.floor(at / maps.columns) * height + row);
  if (mine.join() !== [shown, layer, tile].join()) return;
  byId("pointed").textContent = level === undefined ? (isOneFile ? place : `${place}; its value: hookcli report --single-file`) : `${place}: ${valueOf(grid, level)}`;
}

// The rows or columns of the layer that a pixel represents, counted from 0.
function spanOf(what, place, maps, axis) {
  const many = Math.ceil(Math.max(...maps.own) / Math.max(...maps.size));
  if (maps.own[axis] === maps.size[axis]) return `${what} ${place}`;
  return `${what}s ${many * place} to ${Math.min(many * (place + 1), maps.own[axis]) - 1}`;
}

function valueOf(grid, level) {
  const range = rangeOf(grid);
  if (level > MOST) return "NaN or Inf";
  if (!range) return "its range is not on this page";
  const [low, high] = range, step = (high - low) / MOST;
  if (!step) return `${low}, as everywhere`;
  const unit = 10 ** (Math.floor(Math.log10(step)) - 1);
  const value = Math.round((low + level * step) / unit) * unit;
  return `${Number(value.toPrecision(12))}, in steps of ${Number(step.toPrecision(2))}`;
}

byId("stage-tile").addEventListener("pointermove", point);
byId("stage-tile").addEventListener("pointerdown", point);
byId("stage-tile").addEventListener("pointerleave", () => { byId("pointed").textContent = ""; });
byId("whole").addEventListener("mousemove", pick);
byId("whole").addEventListener("click", pick);
function pick(event) {
  if (choose(event, byId("whole"))) show();
}
byId("overlay").addEventListener("change", show);
byId("strength").addEventListener("input", show);
byId("close").addEventListener("click", () => viewer.close());
byId("channel").addEventListener("change", () => go(0, Number(byId("channel").value) - tile));
byId("before").addEventListener("click", () => go(0, -1));
byId("after").addEventListener("click", () => go(0, 1));
viewer.addEventListener("keydown", (event) => {
  if (event.target.type === "range" || event.target === byId("channel")) return;
  const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  if (!steps) return;
  event.preventDefault();
  go(...steps);
});

function go(layers, tiles) {
  const grid = gridOf(layer), count = grid?.places ? grid.channels.length : 1;
  tile = Math.min(Math.max(0, tile + tiles), count - 1);
  const calls = [...picturesOf(shown).keys()].sort((a, b) => a - b);
  layer = calls[Math.min(Math.max(0, calls.indexOf(layer) + layers), calls.length - 1)];
  show();
}

// The address: #CALL_ID goes to a layer, #CALL_ID/CHANNEL opens the viewer, for the first image with
// pictures. #CALL_ID/CHANNEL/IMAGE does so for another image, by its position in the page. A channel
// that was not drawn is shown among the images that fire it most, if the page has them.
const addressOf = (call, ...more) => `#${[encodeURIComponent(data.calls[call]).replaceAll("%3A", ":"), ...more].join("/")}`;

function address() {
  const grid = gridOf(layer), channel = grid?.places ? grid.channels[tile] : undrawn;
  return channel === undefined ? addressOf(layer) : addressOf(layer, channel, ...(shown === data.first ? [] : [shown]));
}

let waiting = 0;  // browsers limit how often a page may change the address
function keepAddress() {
  clearTimeout(waiting);
  waiting = setTimeout(() => viewer.open && history.replaceState(null, "", address()), 150);
}
viewer.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search + hashBefore));

byId("copy").addEventListener("click", async () => {
  const link = location.href.split("#")[0] + address();
  history.replaceState(null, "", address());
  try {
    await navigator.clipboard.writeText(link);
    byId("copied").textContent = "Copied.";
  } catch {
    byId("copied").textContent = "Not allowed here: copy it from the address of the page.";
  }
  setTimeout(() => { byId("copied").textContent = ""; }, 4000);
});

function readAddress() {
  let [name, channel, index] = location.hash.slice(1).split("/").map(decoded);
  if (!data.calls.includes(name)) {  // typed by hand, with a "/" of its own: #layer1.0/op:add/17
    const typed = decoded(location.hash.slice(1)), [, whole, last] = typed.match(/^(.*?)(?:\/(\d+))?$/);
    [name, channel, index] = data.calls.includes(typed) ? [typed] : [whole, last];
  }
  const chosen = Number(index ?? image), call = data.calls.indexOf(name);
  const isChannel = call >= 0 && /^\d+$/.test(channel) && Number.isInteger(chosen) && chosen >= 0 && chosen < data.images;
  return { call, chosen, channel: isChannel ? Number(channel) : undefined };
}

const isInGallery = ({ call, chosen, channel }) => channel !== undefined && gallery.some(([each]) => each === call) && !picturesOf(chosen).get(call)?.channels.includes(channel);

function openAddress() {
  const named = readAddress(), { call, chosen, channel } = named;
  const target = document.getElementById(location.hash.slice(1)) ?? document.getElementById(`layer-${call}`);
  const wasHidden = target?.hidden;  // by the search in the table
  if (wasHidden) {
    byId("filter").value = byId("type").value = "";
    filter();
  }
  asked = target;
  if (target && (wasHidden || call >= 0)) target.scrollIntoView();
  document.dispatchEvent(new Event("layerasked"));
  if (channel !== undefined && !isInGallery(named)) openViewer(chosen, call, channel);
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

if (wall) {
  buildWall();
  byId("image")?.addEventListener("change", buildWall);
}
window.addEventListener("hashchange", openAddress);
openAddress();
