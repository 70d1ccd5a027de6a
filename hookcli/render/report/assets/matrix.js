// Draws a matrix of values from 0 to 1; the names of the rows stay in view when it is scrolled sideways.
function drawMatrix(box, { rows, columns, values, ramp }, say) {
  const most = Math.max(rows.length, columns.length), longest = Math.max(...columns.map((name) => name.length));
  const room = Math.min(330, 0.72 * box.parentElement.clientWidth);
  const side = Math.max(5, Math.min(120, Math.max(28, Math.floor(room / most)), Math.floor(900 / most)));
  const make = (kind, className, text = "") => Object.assign(document.createElement(kind), { className, textContent: text });
  const name = (names, kind) => {
    const list = make("div", kind), every = Math.ceil(14 / side);
    list.append(...names.map((each, at) => Object.assign(make("span", "", at % every ? "" : `\u200e${each}\u200e`), { title: each })));
    return list;
  };
  const stops = ramp.map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
  const colourOf = (value) => stops[Math.round(Math.min(Math.max(value, 0), 1) * (stops.length - 1))];
  const canvas = Object.assign(make("canvas", ""), { width: columns.length, height: rows.length }), cells = make("div", "cells");
  const pixels = new ImageData(columns.length, rows.length);
  values.flat().forEach((value, at) => pixels.data.set([...colourOf(value), 255], 4 * at));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", box.dataset.label);
  cells.append(canvas);
  if (side >= 40) cells.append(...values.flat().map((value) => {
    const [red, green, blue] = colourOf(value), text = make("span", "", value.toFixed(2));
    text.style.color = 0.3 * red + 0.6 * green + 0.1 * blue > 140 ? "#000" : "#fff";
    return text;
  }));
  for (const kind of ["pointermove", "pointerdown"]) cells.addEventListener(kind, ({ clientX, clientY }) => {
    const { left, top } = canvas.getBoundingClientRect();
    const column = Math.floor((clientX - left) / side), row = Math.floor((clientY - top) / side);
    if (values[row]?.[column] !== undefined) say(`${rows[row]} and ${columns[column]}: ${values[row][column]}`);
  });
  box.style.setProperty("--cell", `${side}px`);
  box.style.setProperty("--columns", columns.length);
  box.style.setProperty("--ramp", ramp.join(", "));
  const scale = make("p", "scale");
  scale.append("0 ", make("span", "ramp"), " 1");
  box.append(name(rows, "rows"), cells, scale, name(columns, side >= 7 * (longest + 1) ? "columns" : "columns turned"));
}
