// What each sub-layer does to a metric: a waterfall through the points of every block, and the mean by kind.
const KINDS = ["LayerNorm", "Attention", "MLP", "Attention + MLP"];
const STEPS = {
  chain: {
    pre: [["pre", "norm1", 0], ["norm1", "mid", 1], ["mid", "norm2", 0], ["norm2", "post", 2]],
    post: [["pre", "attn_sum", 1], ["attn_sum", "mid", 0], ["mid", "mlp_sum", 2], ["mlp_sum", "post", 0]],
    // A parallel block adds both in one sum; with two norms, each branch has its own way there.
    parallel: [["pre", "norm1", 0], ["norm1", "post", 3], ["pre", "norm2", 0], ["norm2", "post", 3]],
    "parallel-shared": [["pre", "norm1", 0], ["norm1", "post", 3]],
  },
  residual: {
    pre: [["pre", "mid", 1], ["mid", "post", 2]],
    post: [["pre", "attn_sum", 1], ["attn_sum", "mid", 0], ["mid", "mlp_sum", 2], ["mlp_sum", "post", 0]],
    parallel: [["pre", "post", 3]], "parallel-shared": [["pre", "post", 3]],
  },
};

function stepsSection(root) {
  const metrics = data.families.flatMap((family) => family.metrics);
  const state = { model: 0, metric: data.families[0].metrics[0], tokens: data.tokens[0], reading: "residual" };
  const chart = h("div", { class: "figure-body", id: "steps-chart" });
  const table = h("div", { class: "figure-body scroll", id: "kinds-table" });
  const redrawChart = responsive(chart, (width) => waterfall(models[state.model], state, width));
  const key = h("p", { class: "key" });
  const redraw = () => { redrawChart(); table.replaceChildren(kindsTable(state)); key.replaceChildren(...kindsKey(state)); };
  const set = (name) => (value) => { state[name] = name === "model" ? Number(value) : value; redraw(); };
  append(root, [
    toolbar(
      segmented("Reading", [["residual", "residual", data.readings.residual], ["chain", "chain", data.readings.chain]], state.reading, set("reading")),
      segmented("Tokens", data.tokens.map((name) => [name, name, data.policies[name]]), state.tokens, set("tokens")),
      select("Metric", metrics.map((name) => [name, metricTitle(name)]), state.metric, set("metric")),
      select("Model", models.map((model) => [model.index, model.name]), 0, set("model"))),
    chart, key, table,
  ]);
  redraw();
  onModels(redraw);
}

function kindsKey({ reading, model }) {
  const used = new Set(STEPS[reading][models[model].placement].map(([, , kind]) => kind));
  return KINDS.map((kind, i) => used.has(i) && h("span", {}, h("i", { class: `swatch kind-${i}` }), kind)).filter(Boolean);
}

function stepsOf(model, { tokens, metric, reading }) {
  const values = (model.values[tokens] || {})[metric];
  if (!values) return [];
  const at = Object.fromEntries(model.points.map((point, i) => [point, values.mean[i]]));
  // A layer's input is the output of the one before; some families show it under that name only.
  const value = (layer, name) => {
    const own = at[`blocks.${layer}.${name}`];
    return own !== undefined || name !== "pre" ? own : layer ? at[`blocks.${layer - 1}.post`] : at.embed;
  };
  return range(model.layers).flatMap((layer) => STEPS[reading][model.placement].map(([a, b, kind], i, row) => (
    { layer, at: layer + (i + 0.5) / row.length, width: 1 / row.length, from: value(layer, a), to: value(layer, b), a, b, kind })))
    .filter((step) => known(step.from) && known(step.to));
}

function waterfall(model, state, width) {
  const steps = stepsOf(model, state);
  if (!steps.length) return h("p", { class: "absent" }, "The points this reading needs were not measured.");
  const chart = frame({
    width, height: narrow() ? 230 : 280, label: `${metricTitle(state.metric)} through the sub-layers of ${model.name}`,
    x: { domain: [0, model.layers], label: "layer", grid: true }, y: { domain: extent(steps.flatMap((step) => [step.from, step.to])), label: metricTitle(state.metric) },
  });
  const { x, y, marks } = chart;
  steps.forEach((step, i) => {
    const [left, right] = [x(step.at - step.width * 0.42), x(step.at + step.width * 0.42)];
    const [top, tall] = [Math.min(y(step.from), y(step.to)), Math.abs(y(step.from) - y(step.to))];
    const next = steps[i + 1];
    append(marks, [
      next && next.from === step.to && s("line", { class: "joint", x1: right, x2: x(next.at - next.width * 0.42), y1: y(step.to), y2: y(step.to) }),
      s("rect", { class: `bar kind-${step.kind}`, x: left, y: top, width: Math.max(1, right - left), height: Math.max(1, tall) }),
    ]);
  });
  walkable(chart, steps.map((step) => ({
    x: x(step.at), y: y(step.to), head: `layer ${step.layer} · ${KINDS[step.kind]}`,
    rows: [
      { name: step.a, value: show(step.from, 4) }, { name: step.b, value: show(step.to, 4) },
      { name: "change", value: signed(step.to - step.from) },
    ],
  })));
  return chart.svg;
}

function kindsTable({ reading, tokens }) {
  const metrics = data.families.map((family) => family.metrics[0]);
  const rows = shown().flatMap((model) => {
    const changes = (model.changes[reading] || {})[tokens] || {};
    return KINDS.filter((kind) => changes[kind]).map((kind, i, all) => h("tr", {},
      i === 0 && models.length > 1 && h("th", { scope: "rowgroup", rowspan: all.length, class: "model-name" }, h("i", { class: "swatch", style: { background: model.colour } }), model.name),
      h("th", { scope: "row" }, kind),
      metrics.map((metric) => changeCell(changes[kind][metric], metric))));
  });
  return h("table", { class: "numbers" },
    h("caption", {}, `Mean change by kind of layer, ${reading} reading, ${tokens} tokens; ± is one standard deviation over samples, [ ] the 95 % interval of the mean.`),
    h("thead", {}, h("tr", {}, models.length > 1 && h("th", {}, "model"), h("th", {}, "kind"), metrics.map((metric) => h("th", { class: "number" }, metricTitle(metric))))),
    h("tbody", {}, rows.length ? rows : h("tr", {}, h("td", {}, "not measured"))));
}

function changeCell(change, metric) {
  const label = { "data-label": metricTitle(metric) };
  if (!change) return h("td", { class: "number", ...label }, "–");
  const clear = change.low > 0 || change.high < 0;
  const way = !clear ? "unclear" : change.mean * data.metrics[metric].smoother > 0 ? "smooth" : "sharp";
  const word = known(change.low) ? { unclear: "no clear change", smooth: "smoother", sharp: "sharper" }[way] : "one sample";
  return h("td", { class: `number ${way}`, ...label },
    h("b", {}, signed(change.mean)), known(change.std) ? ` ± ${show(change.std, 2)} ` : " ",
    known(change.low) && h("small", {}, `[${show(change.low)}, ${show(change.high)}] `), h("em", {}, word));
}
