// Which models are shown: one legend for the whole page, which stays in view.
const data = JSON.parse(find("#data").textContent);
const models = data.models.map((model, index) => ({ ...model, index, colour: modelColour(index) }));
const hidden = new Set();
const watchers = [];

const shown = () => models.filter((model) => !hidden.has(model.index));
const explained = () => shown().filter((model) => model.explain);
const onModels = (redraw) => watchers.push(redraw);

function legend() {
  if (models.length < 2) return null;
  return h("div", { class: "legend", role: "group", "aria-label": "Models shown" }, models.map((model) => {
    const input = h("input", { type: "checkbox", checked: true, onchange: () => {
      if (input.checked) hidden.delete(model.index);
      else hidden.add(model.index);
      if (hidden.size === models.length) { hidden.delete(model.index); input.checked = true; }
      watchers.forEach((redraw) => redraw());
    } });
    const sample = s("svg", { width: 30, height: 12, "aria-hidden": "true" },
      s("line", { x1: 0, x2: 30, y1: 6, y2: 6, stroke: model.colour, "stroke-width": 2, "stroke-dasharray": modelDash(model.index) }),
      marker(model.index, 15, 6, 3.5, { fill: model.colour, stroke: model.colour }));
    return h("label", { title: model.name }, input, sample, h("span", {}, model.name));
  }));
}

// The position of a point along the residual stream: a layer's input is i, its output i + 1.
function depthOf(point) {
  const [, layer, name] = point.split(".");
  if (name === undefined) return point === "embed" ? 0 : null;
  return { pre: 0, mid: 0.5, post: 1 }[name] === undefined ? null : Number(layer) + { pre: 0, mid: 0.5, post: 1 }[name];
}

// A name that fits so many pixels.
function short(name, width) {
  const most = Math.max(6, Math.floor(width / 7));
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

const metricTitle = (metric) => data.metrics[metric].title;
const columns = (width, count, least) => Math.max(1, Math.min(count, Math.floor(width / least)));

// Panels side by side, as many as fit.
function panels(width, items, least, draw) {
  const across = columns(width, items.length, least);
  const gap = 16;
  const each = Math.floor((width - gap * (across - 1)) / across);
  return h("div", { class: "panels", style: `--across: ${across}; grid-template-columns: repeat(${across}, ${each}px); gap: ${gap}px` },
    items.map((item) => draw(item, each)));
}
