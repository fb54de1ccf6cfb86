// The playground's plot area with axes, redrawn whole whenever its state or width changes.
// Marks may reach `bleed` pixels out of the plot: half a marker, not a whole region.
function frame({ width, height, x, y, title, label, margin = {}, bleed = 5 }) {
  const m = { top: title ? 26 : 10, right: 12, bottom: x.label ? 40 : 24, left: y.label ? 56 : 42, ...margin };
  const [inner, tall] = [Math.max(40, width - m.left - m.right), Math.max(40, height - m.top - m.bottom)];
  const make = (axis, span, count) => linearScale(axis.domain, span, axis.count || count);
  const sx = make(x, [m.left, m.left + inner], Math.max(3, Math.round(inner / 70)));
  const sy = make(y, [m.top + tall, m.top], Math.max(3, Math.round(tall / 45)));
  const svg = s("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label || title || "" });
  const axes = s("g", { class: "axes", "aria-hidden": "true" });
  if (!y.hidden) {
    for (const tick of y.ticks || sy.ticks) {
      append(axes, [
        s("line", { class: "grid", x1: m.left, x2: m.left + inner, y1: sy(tick), y2: sy(tick) }),
        s("text", { x: m.left - 7, y: sy(tick), dy: "0.32em", "text-anchor": "end" }, (y.format || sy.format)(tick)),
      ]);
    }
  }
  for (const tick of x.ticks || sx.ticks) {
    append(axes, [
      s("line", { class: x.grid ? "grid" : "tick", x1: sx(tick), x2: sx(tick), y1: x.grid ? m.top : m.top + tall, y2: m.top + tall + 4 }),
      s("text", { x: sx(tick), y: m.top + tall + 16, "text-anchor": "middle" }, (x.format || sx.format)(tick)),
    ]);
  }
  append(axes, [
    s("line", { class: "axis", x1: m.left, x2: m.left + inner, y1: m.top + tall, y2: m.top + tall }),
    x.label && s("text", { class: "axis-label", x: m.left + inner / 2, y: height - 6, "text-anchor": "middle" }, x.label),
    y.label && s("text", { class: "axis-label", transform: `translate(13 ${m.top + tall / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label),
    title && s("text", { class: "chart-title", x: m.left, y: 15 }, title),
  ]);
  svg.append(axes);
  const plot = { left: m.left, right: m.left + inner, top: m.top, bottom: m.top + tall, width: inner, height: tall };
  const clip = fresh("clip");
  const marks = s("g", { "clip-path": `url(#${clip})` });
  append(svg, [s("clipPath", { id: clip }, s("rect", { x: plot.left - bleed, y: plot.top - bleed, width: inner + 2 * bleed, height: tall + 2 * bleed })), marks]);
  return { svg, x: sx, y: sy, plot, marks };
}

// A path through the points whose values are known; gaps stay gaps.
function path(points) {
  let pen = "M";
  const parts = [];
  for (const [x, y] of points) {
    if (!known(x) || !known(y)) { pen = "M"; continue; }
    parts.push(`${pen}${x.toFixed(2)} ${y.toFixed(2)}`);
    pen = "L";
  }
  return parts.join("");
}

// Runs `draw(width)` now, when the width changes and when asked to.
function responsive(box, draw) {
  let width = 0;
  const redraw = () => { if (width > 0) { hideTip(); box.replaceChildren(...[draw(width)].flat().filter(Boolean)); } };
  new ResizeObserver((entries) => {
    const next = Math.floor(entries[0].contentRect.width);
    if (next && next !== width) { width = next; redraw(); }
  }).observe(box);
  return redraw;
}
