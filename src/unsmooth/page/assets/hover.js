// What a drawing says when it is pointed at or walked through with the arrow keys. The drawing is Python's; its
// `data-frame` says where values lie in it, and the numbers are read from the page's data.
const data = JSON.parse(find("#data").textContent);
const models = data.models.map((model, index) => ({ ...model, index, colour: `var(--model-${index % 6})` }));
const hidden = new Set();
const shown = () => models.filter((model) => !hidden.has(model.index));

function frameOf(svg) {
  const [left, top, width, height, x0, x1, y0, y1] = svg.dataset.frame.split(" ").map(Number);
  return {
    svg, plot: { left, right: left + width, top, bottom: top + height }, ends: [x0, x1],
    x: (value) => left + ((value - x0) / (x1 - x0)) * width,
    y: (value) => top + height - ((value - y0) / (y1 - y0)) * height,
  };
}

// The position of a point along the residual stream: a layer's input is i, its output i + 1.
function depthOf(point) {
  const [, layer, name] = point.split(".");
  if (name === undefined) return point === "embed" ? 0 : null;
  const step = { pre: 0, mid: 0.5, post: 1 }[name];
  return step === undefined ? null : Number(layer) + step;
}

function place(depth, layers) {
  if (depth % 1) return `layer ${Math.floor(depth)}, between attention and MLP`;
  return depth < layers ? `input of layer ${depth}` : `output of layer ${layers - 1}`;
}

function depthStops({ x, plot }, { metric, tokens, relative }) {
  const found = new Map();
  for (const model of shown()) {
    const values = model.values[tokens][metric];
    const seen = new Set();
    model.points.forEach((point, i) => {
      const depth = depthOf(point);
      if (depth === null || seen.has(depth)) return;
      seen.add(depth);
      const at = relative ? depth / model.layers : depth;
      const stop = found.get(at) || { x: x(at), y: plot.top, head: relative ? `relative depth ${show(at, 2)}` : place(depth, model.layers), rows: [] };
      stop.rows.push({ name: `${model.name} · ${point}`, value: `${show(values.mean[i], 4)} ± ${show(values.std[i], 2)}`, colour: model.colour });
      found.set(at, stop);
    });
  }
  return [...found].sort(([a], [b]) => a - b).map(([, stop]) => stop);
}

function stepsStops({ x, plot }, { metric, tokens, reading }, svg) {
  const model = models[Number(stateOf(svg.closest(".figure")).model || 0)];
  const values = Object.fromEntries(model.points.map((point, i) => [point, model.values[tokens][metric].mean[i]]));
  // A layer's input is the output of the one before; some families show it under that name only.
  const value = (layer, name) => values[`blocks.${layer}.${name}`] ?? (name === "pre" ? values[layer ? `blocks.${layer - 1}.post` : "embed"] : undefined);
  const block = model.steps[reading];
  return range(model.layers).flatMap((layer) => block.map(([a, b, kind], i) => {
    const [from, to] = [value(layer, a), value(layer, b)];
    return known(from) && known(to) && {
      x: x(layer + (i + 0.5) / block.length), y: plot.top, head: `layer ${layer} · ${kind}`,
      rows: [{ name: a, value: show(from, 4) }, { name: b, value: show(to, 4) }, { name: "change", value: signed(to - from) }],
    };
  })).filter(Boolean);
}

function histogramStops({ x, plot, ends: [low, high] }, { counts }) {
  const found = counts.split(" ").map(Number);
  const [total, step] = [found.reduce((a, b) => a + b), (high - low) / found.length];
  return found.map((count, i) => ({
    x: x(low + step * (i + 0.5)), y: plot.top, head: `${show(low + step * i)} … ${show(low + step * (i + 1))}`,
    rows: [{ name: "eigenvalues", value: String(count) }, { name: "share", value: `${((100 * count) / total).toFixed(1)} %` }],
  }));
}

function exponentsStops({ x, plot }, { model }) {
  const { layers, exponents } = models[model].explain;
  return layers.map((layer, i) => ({
    x: x(layer), y: plot.top, head: `layer ${layer}`,
    rows: Object.entries(exponents).map(([name, values]) => ({ name: data.series[name], value: signed(values[i]) })),
  }));
}

function agreementStops({ x, y }, { model, against }) {
  const { rows } = models[model].explain;
  return rows[against].map((value, i) => ({
    x: x(value), y: y(rows.measured[i]), head: `layer ${rows.layer[i]}, input ${rows.input[i]}`,
    rows: [{ name: "predicted", value: signed(value) }, { name: "measured", value: signed(rows.measured[i]) }],
  }));
}

function headsStops({ x, y }, { model, view }) {
  const exponent = view === "exponent";
  const layers = models[model].explain.layers;
  return models[model].explain.heads[view].flatMap((row, i) => row.map((value, head) => ({
    x: x(head + 0.5), y: y(i + 0.5), head: `layer ${layers[i]}, head ${head}`,
    rows: [{ name: exponent ? "exponent γ" : "attention entropy", value: exponent ? `${signed(value)} nats per layer` : `${percent(value)} of log n` }],
  })));
}

function partsStops({ x, y }, { model, tokens }) {
  const { columns, shares } = models[model].parts;
  return shares[tokens].flatMap((row, layer) => row.map((value, i) => ({
    x: x(i + 0.5), y: y(layer + 0.5), head: `layer ${layer}, ${columns[i]}`,
    rows: [{ name: "share of ln HFC/LFC", value: signed(value) }],
  })));
}

const STOPS = {
  depth: [depthStops, false], steps: [stepsStops, false], histogram: [histogramStops, false],
  exponents: [exponentsStops, false], agreement: [agreementStops, true], heads: [headsStops, true],
  parts: [partsStops, true],
};

// Drawings are many and most are never looked at: one is made walkable when it is first met.
const met = new WeakSet();
function meet(event) {
  const svg = event.target.closest?.("svg[data-chart]");
  if (!svg || met.has(svg) || !STOPS[svg.dataset.chart]) return;
  met.add(svg);
  const [stops, both] = STOPS[svg.dataset.chart];
  const frame = frameOf(svg);
  walkable(frame, () => stops(frame, svg.dataset, svg), { both });
}
