"use strict";
// Several images: the contact sheet, and an image of it in a panel. The page says seenOf(index), the
// address of the network's input for an image, and fills the panel when it is told "imageshown".
const contact = {};  // what other scripts may use
{
  const sheet = byId("contact-sheet"), tiles = [...sheet.children];
  const FIRST = tiles.filter((tile) => !tile.hidden).length;  // until the reader asks for all
  const indexOf = (tile) => Number(tile.dataset.image);
  const findings = tiles.map((tile) => (tile.dataset.findings ?? "").split(" ").filter(Boolean).map(Number));
  const counted = (number) => number.toLocaleString("en");
  const text = (tile, part) => tile.querySelector(part)?.textContent ?? "";
  const inOrder = new Intl.Collator("en", { numeric: true }).compare;
  let matching = tiles;  // in their order on the page
  let areAllShown = tiles.length <= FIRST;

  function element(kind, facts, ...inside) {
    const made = Object.assign(document.createElement(kind), facts);
    made.append(...inside);
    return made;
  }

  // The contact sheet: searching by text and finding, and sorting.
  const orders = {
    name: () => 0,  // ties keep the order of the run
    prediction: (one, two) => inOrder(text(one, ".category"), text(two, ".category")) || sureOf(two) - sureOf(one),
    sure: (one, two) => sureOf(one) - sureOf(two),  // any other name is that of the tiles' data
    finding: (one, two) => gravest(one) - gravest(two),
  };
  const sureOf = (tile) => Number(tile.dataset.sure ?? 2);  // images without a value come last
  const gravest = (tile) => findings[indexOf(tile)][0] ?? Infinity;

  function hasFinding(tile, wanted) {
    const own = findings[indexOf(tile)];
    if (wanted === "any") return own.length > 0;
    if (wanted === "none") return own.length === 0;
    return wanted === "" || own.includes(Number(wanted));
  }

  function showWhole(tile) {  // the network's input, for an image without a thumbnail
    const whole = tile.querySelector(".thumb.whole"), seen = whole && seenOf(indexOf(tile));
    if (seen) whole.style.backgroundImage = `url("${seen}")`;
  }

  function look() {
    const wanted = byId("image-filter").value.trim().toLowerCase(), finding = byId("image-finding")?.value ?? "";
    const fits = (tile) => hasFinding(tile, finding) && [tile.firstElementChild.title, text(tile, ".category")].some((each) => each.toLowerCase().includes(wanted));
    const byName = [...tiles].sort((one, two) => inOrder(one.firstElementChild.title, two.firstElementChild.title));
    const by = byId("image-sort").value, valueOf = (tile) => Number(tile.dataset[by] ?? Infinity);
    const sorted = byName.sort(orders[by] ?? ((one, two) => valueOf(one) - valueOf(two)));
    matching = sorted.filter(fits);
    const kept = new Set(matching.slice(0, areAllShown ? Infinity : FIRST));
    for (const tile of tiles) tile.hidden = !kept.has(tile);
    for (const tile of kept) showWhole(tile);
    sheet.append(...sorted);
    sheet.classList.toggle("long", kept.size > FIRST);
    const all = byId("image-all");
    all.hidden = kept.size === matching.length;
    all.textContent = `Show all ${counted(matching.length)}`;
    byId("image-count").textContent = `${counted(matching.length)} of ${counted(tiles.length)}`;
  }
  byId("image-filter").addEventListener("input", look);
  for (const id of ["image-finding", "image-sort"]) byId(id)?.addEventListener("change", look);
  byId("image-all").addEventListener("click", () => {
    const next = matching[FIRST];
    areAllShown = true;
    look();
    next?.firstElementChild.focus();
  });
  for (const button of document.querySelectorAll("button[data-finding]")) {
    button.addEventListener("click", () => {
      byId("image-filter").value = "";
      byId("image-finding").value = button.dataset.finding;
      look();
      byId("images").scrollIntoView();
      byId("image-finding").focus({ preventScroll: true });
    });
  }
  look();

  // One image: the network's input, the facts about it, and its pictures.
  const panel = byId("panel"), inside = byId("panel-inside");
  let current = 0;  // the index of the visible image

  function openImage(index) {
    showImageOf(index);
    if (!panel.open) panel.showModal();
    panel.scrollTop = 0;
  }

  function showImageOf(index) {
    current = index;
    const tile = tiles[index], at = matching.indexOf(tile);
    byId("panel-title").textContent = tile.firstElementChild.title;
    byId("panel-place").textContent = at < 0 ? "" : `${counted(at + 1)} of ${counted(matching.length)}`;
    byId("panel-before").ariaDisabled = at <= 0;  // a disabled button would lose the focus
    byId("panel-next").ariaDisabled = at < 0 || at === matching.length - 1;
    const filled = document.querySelector(`template[data-panel="${index}"]`) ?? byId("panel-filled");
    inside.replaceChildren(filled.content.cloneNode(true));
    inside.querySelector(".large").append(...largeOf(index));
    document.dispatchEvent(new CustomEvent("imageshown", { detail: { inside, index } }));
  }

  function largeOf(index) {
    const seen = seenOf(index), alt = "The image as the network saw it";
    const thumb = tiles[index].querySelector(".thumb").cloneNode();
    thumb.setAttribute("role", "img");
    thumb.setAttribute("aria-label", alt);
    const small = [thumb, element("p", { className: "dim", textContent: "Enlarged: no larger picture is beside this page." })];
    if (!seen) return small;
    const large = element("img", { src: seen, alt });
    large.addEventListener("error", () => large.replaceWith(...small));
    return [large];
  }

  function walk(step) {
    const next = matching[matching.indexOf(tiles[current]) + step];
    if (!matching.includes(tiles[current]) || !next) return;
    showImageOf(indexOf(next));
    panel.scrollTop = 0;
  }
  sheet.addEventListener("click", (event) => {
    const tile = event.target.closest("li");
    if (tile) openImage(indexOf(tile));
  });
  byId("panel-before").addEventListener("click", () => walk(-1));
  byId("panel-next").addEventListener("click", () => walk(1));
  byId("panel-close").addEventListener("click", () => panel.close());
  panel.addEventListener("close", () => inside.replaceChildren());
  panel.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.target.closest("input, select, .picked")) return;
    event.preventDefault();
    walk(step);
  });

  function openLinked() {
    const linked = /^#image-(\d+)$/.exec(location.hash);
    if (linked && tiles[Number(linked[1])]) openImage(Number(linked[1]));
  }
  window.addEventListener("hashchange", openLinked);
  document.addEventListener("DOMContentLoaded", openLinked);  // when all scripts listen
  Object.assign(contact, { tiles, findings, element, showWhole, openImage });
}
