"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
let image = 0;

// What an image's pictures show, by layer; read when the image is looked at.
const read = new Map();
function picturesOf(index) {
  if (!read.has(index)) {
    const text = document.querySelector(`script[data-pictures="${index}"]`).textContent;
    const { pictures, grids } = JSON.parse(text);
    for (const grid of grids) grid.src = pictures[grid.picture] ?? "";
    read.set(index, new Map(grids.map((grid) => [grid.call, grid])));
  }
  return read.get(index);
}
const seenOf = (index) => document.querySelector(`img[data-seen="${index}"]`)?.src ?? "";

// A picture that is embedded in the page is embedded once.
const pictures = new Map([...document.querySelectorAll("img[data-file][src]")].map((each) => [each.dataset.file, each.src]));
for (const each of document.querySelectorAll("img[data-file]:not([src])")) each.src = pictures.get(each.dataset.file);

// The table: sort by a column, find by text and type.
const body = byId("table").tBodies[0];
for (const [index, head] of [...byId("table").tHead.rows[0].cells].entries()) {
  const button = head.querySelector("button");
  if (button) button.addEventListener("click", () => sortBy(head, index));
}

function sortBy(head, index) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.cells[index].dataset.value;
  const rows = [...body.rows].sort((one, two) => {
    const a = value(one), b = value(two);
    if (a === "" || b === "") return (a === "") - (b === "");
    const numbers = [Number(a), Number(b)];
    const order = numbers.some(Number.isNaN) ? a.localeCompare(b, "en", { numeric: true }) : numbers[0] - numbers[1];
    return down ? -order : order;
  });
  body.append(...rows);
}

function filter() {
  const text = byId("filter").value.trim().toLowerCase();
  const type = byId("type").value;
  let shown = 0;
  for (const row of body.rows) {
    const fits = row.textContent.toLowerCase().includes(text) && (!type || row.dataset.type === type);
    row.hidden = !fits;
    shown += fits;
  }
  byId("count").textContent = `${shown} of ${body.rows.length}`;
}
byId("filter").addEventListener("input", filter);
byId("type").addEventListener("change", filter);
filter();

// The pictures of one image, in the section of feature maps.
const articles = [...document.querySelectorAll("article[data-call]")];
const sheet = byId("sheet");
if (data.images) {
  const first = picturesOf(0);  // their addresses stand in the page
  for (const article of articles) {
    const grid = first.get(Number(article.dataset.call));
    if (grid) grid.src = article.querySelector("img").src;
  }
  if (sheet) for (const grid of first.values()) grid.src = sheet.firstElementChild.src;
}

function showImage(index) {
  image = index;
  const mine = picturesOf(index);
  if (sheet) {
    const [grid] = mine.values();
    sheet.hidden = !grid;
    if (grid) Object.assign(sheet.firstElementChild, { src: grid.src, width: grid.size[0], height: grid.size[1] });
  }
  for (const article of articles) {
    const picture = article.querySelector("img"), grid = mine.get(Number(article.dataset.call));
    if (!picture) continue;
    if (grid) Object.assign(picture, { src: grid.src, width: grid.size[0], height: grid.size[1] });
    picture.parentElement.hidden = !grid;
    article.querySelector(".absent").hidden = Boolean(grid);
  }
}

const chooser = byId("image");
if (chooser) {
  chooser.addEventListener("change", () => showImage(Number(chooser.value)));
  chooser.value = "0";
}

// An image's own section: its pictures come when it is opened.
for (const section of document.querySelectorAll("details.image")) {
  section.addEventListener("toggle", () => {
    const box = section.querySelector(".maps"), index = Number(section.dataset.image);
    if (!section.open || box.hasChildNodes()) return;
    const large = new Image();
    Object.assign(large, { src: seenOf(index), alt: "The image as the network saw it" });
    section.querySelector(".large").append(large);
    fill(box, index);
  });
}

function fill(box, index) {
  const drawn = new Set();
  for (const grid of picturesOf(index).values()) {
    if (drawn.has(grid.src)) continue;  // one sheet for all layers
    drawn.add(grid.src);
    const button = document.createElement("button"), picture = document.createElement("img");
    Object.assign(picture, { src: grid.src, width: grid.size[0], height: grid.size[1], loading: "lazy", alt: sheet ? "Feature maps of all layers" : `Feature maps of ${data.calls[grid.call]}` });
    Object.assign(button, { type: "button", className: "grid" });
    button.append(picture);
    button.addEventListener("click", (event) => open(index, grid.call, event));
    box.append(button);
  }
  if (!drawn.size) box.textContent = "No pictures were drawn.";
}

function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
window.addEventListener("hashchange", openTarget);
openTarget();

// One picture, large: a channel at a time.
const viewer = byId("viewer");
let layer = 0, tile = 0, shown = 0;  // of the image that is shown in the viewer
for (const article of articles) {
  article.querySelector("button.grid")?.addEventListener("click", (event) => open(image, Number(article.dataset.call), event));
}
sheet?.addEventListener("click", (event) => open(image, picturesOf(image).keys().next().value, event));

function open(index, call, event) {
  shown = index; layer = call; tile = 0;
  choose(event, event.currentTarget.firstElementChild);
  viewer.showModal();
  show();
}

const gridOf = (call) => picturesOf(shown).get(call);

// The layer and tile under the pointer; a sheet has those of many layers.
function choose(event, picture) {
  const mine = gridOf(layer);
  for (const grid of mine ? [mine, ...picturesOf(shown).values()] : []) {
    const index = grid.src === mine.src ? tileAt(grid, event, picture) : -1;
    if (index >= 0) { layer = grid.call; tile = index; return true; }
  }
  return false;
}

function tileAt(grid, event, picture) {
  if (!grid.places) return -1;
  const box = picture.getBoundingClientRect();
  const x = (event.clientX - box.left) * grid.size[0] / box.width - grid.places.left;
  const y = (event.clientY - box.top) * grid.size[1] / box.height - grid.places.top;
  const column = Math.floor(x / grid.places.step_x), row = Math.floor(y / grid.places.step_y);
  const index = row * grid.places.columns + column;
  return column >= 0 && column < grid.places.columns && row >= 0 && index < grid.channels.length ? index : -1;
}

function show() {
  const grid = gridOf(layer), call = data.calls[layer], stage = byId("stage-tile");
  if (!grid) { byId("viewer-title").textContent = call; byId("facts").textContent = "No picture for this image."; return; }
  byId("viewer-title").textContent = call;
  byId("whole").src = grid.src;
  byId("mark").style.display = "none";
  stage.style.backgroundImage = "none";
  if (!grid.places) {
    byId("facts").textContent = "Bars: this layer has no spatial form.";
    stage.parentElement.classList.remove("over");
    return;
  }
  tile = Math.min(tile, grid.channels.length - 1);
  const { left, top, width, height, step_x, step_y, columns } = grid.places;
  const x = left + (tile % columns) * step_x, y = top + Math.floor(tile / columns) * step_y;
  const number = (value) => (value === null ? "not finite" : Number(value.toPrecision(4)).toString());
  byId("facts").textContent = `channel ${grid.channels[tile]}: min ${number(grid.low[tile])}, max ${number(grid.high[tile])}, mean ${number(grid.mean[tile])}, spread ${number(grid.spread[tile])}`;
  stage.style.backgroundImage = `url("${grid.src}")`;
  stage.style.backgroundSize = `${100 * grid.size[0] / width}% ${100 * grid.size[1] / height}%`;
  stage.style.backgroundPosition = `${100 * x / (grid.size[0] - width)}% ${100 * y / (grid.size[1] - height)}%`;
  stage.parentElement.style.aspectRatio = `${width} / ${height}`;
  byId("stage-image").src = seenOf(shown);
  const over = byId("overlay").checked && byId("stage-image").getAttribute("src") !== "";
  stage.parentElement.classList.toggle("over", over);
  stage.style.opacity = over ? byId("strength").value / 100 : 1;
  const mark = byId("mark").style;
  Object.assign(mark, { display: "block", left: `${100 * x / grid.size[0]}%`, top: `${100 * y / grid.size[1]}%`, width: `${100 * width / grid.size[0]}%`, height: `${100 * height / grid.size[1]}%` });
}

byId("whole").addEventListener("mousemove", pick);
byId("whole").addEventListener("click", pick);
function pick(event) {
  if (choose(event, byId("whole"))) show();
}
byId("overlay").addEventListener("change", show);
byId("strength").addEventListener("input", show);
byId("close").addEventListener("click", () => viewer.close());
viewer.addEventListener("keydown", (event) => {
  if (event.target.type === "range") return;
  const grid = gridOf(layer), count = grid && grid.places ? grid.channels.length : 1;
  const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  if (!steps) return;
  event.preventDefault();
  tile = Math.min(Math.max(0, tile + steps[1]), count - 1);
  const calls = [...picturesOf(shown).keys()].sort((a, b) => a - b);
  layer = calls[Math.min(Math.max(0, calls.indexOf(layer) + steps[0]), calls.length - 1)];
  show();
});
