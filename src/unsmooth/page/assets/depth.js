// The form of the paper's Figure 4: metrics along the residual stream, a band of one standard deviation.
function depthSection(root) {
  const families = data.families;
  const state = { tokens: data.tokens[0], log: "linear", band: "shown", metric: families.map((family) => family.metrics[0]) };
  const box = h("div", { class: "figure-body", id: "depth-charts" });
  const redraw = responsive(box, (width) => panels(width, families, 300, (family, each) => depthPanel(family, each, state, redraw)));
  append(root, [
    toolbar(
      segmented("Tokens", data.tokens.map((name) => [name, name, data.policies[name]]), state.tokens, (v) => { state.tokens = v; redraw(); }),
      segmented("Scale", [["linear", "linear"], ["log", "log"]], state.log, (v) => { state.log = v; redraw(); }),
      segmented("Band", [["shown", "± 1 standard deviation"], ["hidden", "none", "the means alone, larger"]], state.band, (v) => { state.band = v; redraw(); })),
    box,
  ]);
  onModels(redraw);
}

function curveOf(model, tokens, metric) {
  const values = (model.values[tokens] || {})[metric];
  if (!values) return [];
  const seen = new Set();
  return model.points.map((point, i) => ({ point, depth: depthOf(point), mean: values.mean[i] ?? NaN, std: values.std[i] }))
    .filter(({ depth }) => depth !== null && !seen.has(depth) && seen.add(depth))
    .sort((a, b) => a.depth - b.depth);
}

function depthPanel(family, width, state, redraw) {
  const at = data.families.indexOf(family);
  const metric = state.metric[at];
  const curves = shown().map((model) => ({ model, curve: curveOf(model, state.tokens, metric) }));
  const all = curves.flatMap(({ curve }) => curve);
  const log = state.log === "log" && all.every(({ mean: value }) => value > 0);
  const bare = log || state.band === "hidden";
  const ends = all.flatMap(({ mean: value, std }) => (bare ? [value] : [value - (std || 0), value + (std || 0)]));
  const domain = log ? [Math.min(...ends) / 1.15, Math.max(...ends) * 1.15] : extent(ends);
  const deepest = Math.max(...all.map(({ depth }) => depth), 1);
  const chart = frame({
    width, height: 250, x: { domain: [0, deepest], label: "layer" }, y: { domain, log },
    label: `${metricTitle(metric)} by depth, ${state.tokens} tokens`, margin: { top: 8 },
  });
  for (const { model, curve } of curves) drawCurve(chart, model, curve, log, deepest, state.band === "shown");
  walkable(chart, depthStops(chart, curves));
  const picker = select("Definition", family.metrics.map((name) => [name, metricTitle(name)]), metric, (value) => { state.metric[at] = value; redraw(); });
  return h("div", { class: "panel", "data-metric": metric },
    h("div", { class: "panel-head" }, picker || h("h4", {}, metricTitle(metric))),
    chart.svg,
    h("p", { class: "reading" }, family.reading, log !== (state.log === "log") ? " (Not all values are positive: drawn on a linear scale.)" : ""));
}

function drawCurve(chart, model, curve, log, deepest, banded) {
  const { x, y, marks } = chart;
  const floor = (value) => (log ? Math.max(value, chart.y.domain[0]) : value);
  const edge = (sign) => curve.map(({ depth, mean: value, std }) => [x(depth), y(floor(value + sign * (std || 0)))]);
  append(marks, [
    banded && s("path", { class: "band", d: band(edge(1), edge(-1)), fill: model.colour }),
    s("path", { class: "curve", d: path(curve.map(({ depth, mean: value }) => [x(depth), y(value)])), stroke: model.colour, "stroke-dasharray": modelDash(model.index) }),
    deepest <= 40 && curve.filter(({ depth }) => depth % 1 === 0 && (deepest <= 16 || depth % 2 === 0)).map(({ depth, mean: value }) =>
      marker(model.index, x(depth), y(value), 3, { fill: model.colour, stroke: model.colour })),
  ]);
}

function depthStops(chart, curves) {
  const depths = [...new Set(curves.flatMap(({ curve }) => curve.map(({ depth }) => depth)))].sort((a, b) => a - b);
  return depths.map((depth) => {
    const rows = curves.flatMap(({ model, curve }) => curve.filter((stop) => stop.depth === depth).map((stop) => (
      { name: `${model.name} · ${stop.point}`, value: `${show(stop.mean, 4)} ± ${show(stop.std, 2)}`, colour: model.colour })));
    return { x: chart.x(depth), y: chart.plot.top, head: depth % 1 ? `layer ${Math.floor(depth)}, between attention and MLP` : depth ? `after layer ${depth - 1}` : "input of layer 0", rows };
  });
}
