// The form of the paper's Figure 5: how the real parts of H's eigenvalues are distributed.
function histogramSection(root) {
  const state = { folding: "raw", of: "heads" };
  const box = h("div", { class: "figure-body", id: "histogram-charts" });
  const redraw = responsive(box, (width) => {
    const pools = explained().map((model) => ({ model, values: pooled(model, state) }));
    const all = pools.flatMap(({ values }) => values);
    const most = Math.max(Math.abs(quantile(all, 0.005)), Math.abs(quantile(all, 0.995))) || 1;
    return panels(width, pools, 260, ({ model, values }, each) => histogram(model, values, most, each, state));
  });
  const set = (name) => (value) => { state[name] = value; redraw(); };
  append(root, [
    toolbar(
      segmented("Folding", [["raw", "before", "as in the paper"], ["folded", "after"]], state.folding, set("folding")),
      segmented("Eigenvalues of", [["heads", "each head", "as in the paper"], ["layer", "Σ heads"]], state.of, set("of"))),
    box,
  ]);
  onModels(redraw);
}

const pooled = (model, { folding, of }) => model.explain.spectra.flatMap((layer) => (layer[folding] || layer.raw)[of].re);

function histogram(model, values, most, width, { folding }) {
  const bins = 41; // odd, so that one bin is centred on 0
  const counts = new Array(bins).fill(0);
  for (const value of values) counts[clamp(Math.floor(((value + most) / (2 * most)) * bins), 0, bins - 1)] += 1;
  const shares = counts.map((count) => count / values.length);
  const chart = frame({
    width, height: 200, x: { domain: [-most, most], label: "Re λ", count: 5 }, y: { domain: [0, Math.max(...shares) * 1.05], format: (value) => `${show(value * 100, 2)} %` },
    label: `Distribution of the real parts of H's eigenvalues, ${model.name}`, margin: { top: 8 },
  });
  const { x, y, marks } = chart;
  const edge = (i) => -most + (2 * most * i) / bins;
  shares.forEach((value, i) => marks.append(s("rect", {
    class: `bar ${i < (bins - 1) / 2 ? "fill-sharp" : i > (bins - 1) / 2 ? "fill-smooth" : "fill-zero"}`,
    x: x(edge(i)) + 0.5, width: Math.max(0.5, x(edge(i + 1)) - x(edge(i)) - 1), y: y(value), height: y(0) - y(value),
  })));
  marks.append(s("line", { class: "axis", x1: x(0), x2: x(0), y1: y.invert ? chart.plot.top : 0, y2: chart.plot.bottom }));
  walkable(chart, shares.map((value, i) => ({
    x: x((edge(i) + edge(i + 1)) / 2), y: y(value), head: `${show(edge(i))} … ${show(edge(i + 1))}`,
    rows: [{ name: "eigenvalues", value: String(counts[i]) }, { name: "share", value: `${(value * 100).toFixed(1)} %` }],
  })));
  const share = (test) => values.filter(test).length / values.length;
  const zero = share((value) => value === 0);
  return h("div", { class: "panel", "data-folding": folding },
    h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), model.name), chart.svg,
    h("p", { class: "reading" }, `${percent(share((value) => value < 0))} negative${manyZeros(zero) ? ` and ${percent(zero)} zero` : ""} of ${values.length} eigenvalues; mean ${show(mean(values))}.`));
}
