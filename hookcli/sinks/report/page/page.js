"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const grids = new Map(data.grids.map((grid) => [`${grid.image}\n${grid.call_id}`, grid]));
let image = 0;

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

// Several images: what is looked at is loaded, the rest is not.
const chooser = byId("image");
if (chooser) chooser.addEventListener("change", () => showImage(Number(chooser.value)));

function showImage(index) {
  image = index;
  const key = data.images[index];
  for (const each of document.querySelectorAll(".predictions")) each.hidden = Number(each.dataset.image) !== index;
  if (byId("seen") && data.seen[key]) byId("seen").src = data.seen[key];
  for (const article of document.querySelectorAll("article[data-call]")) {
    const picture = article.querySelector("img");
    const grid = grids.get(`${key}\n${article.dataset.call}`);
    if (!picture) continue;
    if (grid) picture.src = grid.src;
    picture.parentElement.hidden = !grid;
    article.querySelector(".absent").hidden = Boolean(grid);
  }
}

if (data.images.length) showImage(0);

// One grid, large: a channel at a time.
const viewer = byId("viewer");
const articles = [...document.querySelectorAll("article[data-call]")].filter((each) => each.querySelector("button.grid"));
let layer = 0, tile = 0;

for (const [index, article] of articles.entries()) {
  article.querySelector("button.grid").addEventListener("click", (event) => {
    const grid = gridOf(index);
    layer = index;
    tile = grid ? Math.max(0, tileAt(grid, event, event.currentTarget.firstElementChild)) : 0;
    viewer.showModal();
    show();
  });
}

const gridOf = (index) => grids.get(`${data.images[image]}\n${articles[index].dataset.call}`);

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
  const grid = gridOf(layer), call = articles[layer].dataset.call, stage = byId("stage-tile");
  if (!grid) { byId("viewer-title").textContent = call; byId("facts").textContent = "No picture for this image."; return; }
  byId("viewer-title").textContent = call;
  byId("whole").src = grid.src;
  byId("mark").style.display = "none";
  stage.style.backgroundImage = "none";
  if (!grid.places) {
    byId("facts").textContent = "Bars: this layer has no spatial form.";
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
  byId("stage-image").src = data.seen[data.images[image]] || "";
  const over = byId("overlay").checked && byId("stage-image").getAttribute("src") !== "";
  stage.parentElement.classList.toggle("over", over);
  stage.style.opacity = over ? byId("strength").value / 100 : 1;
  const mark = byId("mark").style;
  Object.assign(mark, { display: "block", left: `${100 * x / grid.size[0]}%`, top: `${100 * y / grid.size[1]}%`, width: `${100 * width / grid.size[0]}%`, height: `${100 * height / grid.size[1]}%` });
}

byId("whole").addEventListener("mousemove", pick);
byId("whole").addEventListener("click", pick);
function pick(event) {
  const grid = gridOf(layer), index = grid ? tileAt(grid, event, byId("whole")) : -1;
  if (index >= 0) { tile = index; show(); }
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
  layer = Math.min(Math.max(0, layer + steps[0]), articles.length - 1);
  show();
});
