// The one tooltip, which screen readers hear too, and charts that can be walked through with arrow keys.
const tip = h("div", { class: "tip", role: "status", "aria-live": "polite" });

function showTip(x, y, head, rows) {
  tip.replaceChildren(h("strong", {}, head), ...rows.map((row) =>
    h("div", { class: "tip-row" },
      row.colour ? h("i", { class: "swatch", style: { background: row.colour } }) : null,
      h("span", {}, row.name), h("b", {}, row.value))));
  tip.classList.add("open");
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > window.innerWidth - 8 ? x - 16 - box.width : x + 16;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${clamp(y - box.height / 2, 8, Math.max(8, window.innerHeight - box.height - 8))}px`;
}

function hideTip() { tip.classList.remove("open"); }

// `find` gives stops {x, y, head, rows} in the SVG's own coordinates. Pointer and arrow keys both move over them.
function walkable(chart, find, { both = false } = {}) {
  const { svg, plot } = chart;
  const line = s("line", { class: "crosshair", y1: plot.top, y2: plot.bottom, visibility: "hidden" });
  const dot = s("circle", { class: "crosshair", r: 6, fill: "none", visibility: "hidden" });
  append(svg, [line, dot]);
  let at = -1;
  const leave = () => { [line, dot].forEach((mark) => mark.setAttribute("visibility", "hidden")); hideTip(); };
  const go = (stops, index) => {
    if (!stops.length) return;
    at = index;
    const stop = stops[index];
    const mark = both ? dot : line;
    assign(mark, both ? { cx: stop.x, cy: stop.y } : { x1: stop.x, x2: stop.x });
    mark.setAttribute("visibility", "visible");
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width || 1;
    showTip(box.left + stop.x * scale, box.top + (both ? stop.y : (plot.top + plot.bottom) / 2) * scale, stop.head, stop.rows);
  };
  assign(svg, {
    tabindex: 0,
    onpointermove: (event) => {
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width || 1;
      const [px, py] = [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
      if (px < plot.left - 12 || px > plot.right + 12) return leave();
      const far = (stop) => Math.abs(stop.x - px) + (both ? Math.abs(stop.y - py) : 0);
      const stops = find();
      go(stops, stops.reduce((best, stop, i) => (far(stop) < far(stops[best]) ? i : best), 0));
    },
    onpointerleave: leave,
    onblur: leave,
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (event.key === "Escape") return leave();
      if (event.key === "Home" || event.key === "End") { event.preventDefault(); const stops = find(); return go(stops, event.key === "Home" ? 0 : stops.length - 1); }
      if (!step) return;
      event.preventDefault();
      const stops = find();
      go(stops, clamp(at + step, 0, stops.length - 1));
    },
  });
  return chart;
}
