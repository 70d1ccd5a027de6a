"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
let image = data.first;  // the first image with pictures
const gallery = byId("top-layer") ? JSON.parse(byId("top").textContent) : [];  // layers with the images that fire their channels most

// The content of an image's pictures, by layer; read when the reader opens the image.
const read = new Map(), seens = new Map();
function picturesOf(index) {
  if (!read.has(index)) {
    const text = document.querySelector(`script[data-pictures="${index}"]`).textContent;
    const { pictures, grids, form, seen } = JSON.parse(text);
    for (const [number, grid] of grids.entries()) {
      Object.assign(grid, data.forms?.[form][number]);  // the facts that several images share
      grid.src = pictures[grid.picture] ?? "";
    }
    seens.set(index, seen);
    read.set(index, new Map(grids.map((grid) => [grid.call, grid])));
  }
  return read.get(index);
}
function seenOf(index) {
  picturesOf(index);
  return document.querySelector(`img[data-seen="${index}"]`)?.src ?? seens.get(index) ?? "";
}

// The table: sort by a column, find by text and type. The list and the maps show the found layers.
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
  const found = new Set();
  for (const row of body.rows) {
    const fits = row.textContent.toLowerCase().includes(text) && (!type || row.dataset.type === type);
    row.hidden = !fits;
    if (fits) found.add(row.dataset.call);
  }
  for (const each of document.querySelectorAll("article[data-call], #list li")) each.hidden = !found.has(each.dataset.call);
  byId("count").textContent = `${found.size} of ${body.rows.length}`;
}
byId("filter").addEventListener("input", filter);
byId("type").addEventListener("change", filter);
filter();

// The pictures of one image, in the section of feature maps.
const articles = [...document.querySelectorAll("article[data-call]")];
const sheet = byId("sheet");
if (data.images) {
  const first = picturesOf(data.first);  // the page has their addresses
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
    if (grid?.places) crop(picture.parentElement, grid);
    picture.parentElement.hidden = !grid;
    article.querySelector(".absent").hidden = Boolean(grid);
  }
}

// In the row of a layer, the first tiles of its picture.
function crop({ style }, { size, places: at }) {
  if (!style.length) return;
  const lengths = { full: size[0], y: at.top, h: at.height, all: 2 * at.left + (at.columns - 1) * at.step_x + at.width, few: at.left + 6 * at.step_x };
  for (const [name, value] of Object.entries(lengths)) style.setProperty(`--${name}`, value);
}

// A map over its image is the right half of its file: the page has the image and the words elsewhere.
// A file of another form (of a map that was not drawn) is shown whole.
async function frame(picture, index) {
  const seen = new Image();
  seen.src = seenOf(index);
  await Promise.allSettled([picture, seen].map((each) => each.decode()));
  const { naturalWidth: whole, naturalHeight: full } = picture;
  const factor = Math.ceil(224 / Math.max(seen.naturalWidth, seen.naturalHeight)), width = factor * seen.naturalWidth, height = factor * seen.naturalHeight;
  if (whole !== 2 * width + 32) return;
  for (const [name, value] of Object.entries({ w: width, h: height + 30, full: whole, x: width + 22, y: full - height - 34 })) picture.parentElement.style.setProperty(`--${name}`, value);
  picture.parentElement.classList.add("framed");
}
for (const group of document.querySelectorAll("main [data-over]:not([hidden])")) for (const picture of group.querySelectorAll("img")) frame(picture, Number(group.dataset.over));

if (matchMedia("(max-width: 44rem)").matches) byId("run").open = false;

const chooser = byId("image");
if (chooser) {
  chooser.addEventListener("change", () => showImage(Number(chooser.value)));
  chooser.value = data.first;
}

// The list of layers: the visible layer is marked, and its neighbours more faintly.
const list = byId("list");
let asked = null;  // the article that the address names
if (list) {
  const links = new Map([...list.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.isIntersecting ? seen.add(entry.target) : seen.delete(entry.target);
    mark();
  }, { rootMargin: "0px 0px -45% 0px" });
  for (const article of articles) observer.observe(article);

  function mark() {
    const current = articles.find((each) => seen.has(each) && each === asked) ?? articles.find((each) => seen.has(each));
    for (const article of articles) {
      const link = links.get(article.id);
      link.classList.toggle("near", seen.has(article));
      if (article !== current) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        byId("list-current").textContent = link.textContent.replace("●", "");
        const { top, bottom } = link.getBoundingClientRect(), box = list.getBoundingClientRect();
        if (top < box.top) list.scrollTop -= box.top - top;
        if (bottom > box.bottom) list.scrollTop += bottom - box.bottom;
      }
    }
  }
  function openList(isOpen) {  // on a narrow screen
    list.classList.toggle("open", isOpen);
    byId("list-open").ariaExpanded = isOpen;
  }
  byId("list-open").addEventListener("click", () => openList(!list.classList.contains("open")));
  byId("list-items").addEventListener("click", (event) => event.target.closest("a") && openList(false));
  list.addEventListener("keydown", (event) => event.key === "Escape" && openList(false));

  window.addEventListener("hashchange", mark);
  document.addEventListener("layerasked", mark);
}
