// Draws shares (0 to 1) over the layers, in the form of the charts over depth: the axis stays in view when the rest is scrolled.
function drawCurves(box, { layers, curves, levels }) {
  const LEFT = 56, TOP = 10, HEIGHT = 260, LONGEST = 24, count = layers.length;
  const width = Math.min(960, Math.max(340, LEFT + 60 * count + 12)), step = (width - 12 - LEFT) / count, base = TOP + HEIGHT;
  const put = (parent, kind, facts, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(facts)) made.setAttribute(name, value);
    made.textContent = text;
    parent.append(made);
    return made;
  };
  const html = (parent, kind, facts) => parent.appendChild(Object.assign(document.createElement(kind), facts));
  const x = (index) => LEFT + step * (index + 0.5), y = (share) => base - HEIGHT * Math.min(Math.max(share, 0), 1);
  const names = layers.map((name) => (name.length > LONGEST ? `…${name.slice(1 - LONGEST)}` : name)), longest = Math.max(...names.map((name) => name.length));
  const upright = 6.5 * (longest + 1) <= step, height = base + (upright ? 24 : 16 + 6.5 * longest);
  const legend = html(box, "p", { className: "legend" }), plot = html(box, "div", { className: "plot" });
  plot.style.cssText = `min-width: ${width}px; max-width: ${1.3 * width}px`;
  const axis = put(plot, "svg", { viewBox: `0 0 ${LEFT} ${height}`, class: "axis depth curves" });
  const chart = put(plot, "svg", { viewBox: `${LEFT} 0 ${width - LEFT} ${height}`, class: "depth curves", role: "group", "aria-label": "Accuracy over depth", style: `flex-grow: ${width - LEFT}` });
  for (let share = 0; share < 1.1; share += 0.2) {
    put(chart, "line", { x1: LEFT, x2: width - 12, y1: y(share), y2: y(share), class: "zero" });
    put(axis, "text", { x: LEFT - 6, y: y(share) + 4, class: "tick" }, `${Math.round(100 * share)}%`);
  }
  const explain = (name, kind) => {
    const entry = html(legend, "span", {}), shape = put(entry, "svg", { viewBox: "-10 -8 20 16", class: "depth curves", "aria-hidden": "true" });
    put(shape, "path", { d: "M-9,0H9", class: kind });
    entry.append(` ${name}`);
    legend.append(" ");
  };
  curves.forEach(({ name, values, spread }, number) => {
    const kind = ["one", "two"][number];
    const runs = [[]];  // no line is drawn across a layer without a value
    values.forEach((value, at) => (value === null ? runs.push([]) : runs.at(-1).push(at)));
    const line = (list, edge) => list.map((at) => `${x(at).toFixed(1)},${y(edge(at)).toFixed(1)}`).join(" ");
    for (const run of runs) {
      const around = `${line(run, (at) => values[at] + spread[at])} ${line([...run].reverse(), (at) => values[at] - spread[at])}`;
      put(chart, "polygon", { points: around, class: `band ${kind}` });
      put(chart, "polyline", { points: line(run, (at) => values[at]), class: `line ${kind}` });
      for (const at of run) put(chart, "circle", { cx: x(at), cy: y(values[at]), r: 2.5, class: kind });
    }
    explain(name, `line ${kind}`);
  });
  levels.forEach(([name, value], number) => {
    put(chart, "path", { d: `M${LEFT},${y(value)}H${width - 12}`, class: `level l${number}` });
    explain(name, `level l${number}`);
  });
  const every = upright ? 1 : Math.ceil(13 / step);
  layers.forEach((layer, at) => {
    if (at % every === 0) put(chart, "text", upright ? { x: x(at), y: base + 16, class: "name" } : { transform: `translate(${x(at) + 4} ${base + 8}) rotate(-90)`, class: "tick" }, names[at]);
    const known = curves.filter(({ values }) => values[at] !== null).map(({ name, values }) => `${name} ${(100 * values[at]).toFixed(1)}%`);
    const hit = put(chart, "rect", { x: LEFT + step * at, y: 0, width: step, height: base, class: "hit" });
    put(hit, "title", {}, [layer, ...known].join("  "));
  });
}
