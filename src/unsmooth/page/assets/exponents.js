// The exponent of every attention sub-layer: predicted from weights and attention, and measured on the same inputs.
const PREDICTIONS = [
  ["measured", "measured", "the change of log HFC/LFC over the attention sub-layer", ""],
  ["exponent", "exponent γ", "log ρ_H − log ρ_L: the rate if this layer were repeated for ever", "7 3"],
  ["small_step", "small-step exponent", "γ for a vanishing step, which pre-norm layers approach as the stream grows", "9 3 2 3"],
  ["frozen", "exact linear step", "the same change with the normalisation's statistics frozen: one step, no limit", "2 2.5"],
];

function exponentsSection(root) {
  const state = { against: "exponent" };
  const lines = h("div", { class: "figure-body", id: "exponent-charts" });
  const cloud = h("div", { class: "figure-body", id: "agreement-charts" });
  const redrawLines = responsive(lines, (width) => panels(width, explained(), 330, (model, each) => exponentPanel(model, each)));
  const redrawCloud = responsive(cloud, (width) => panels(width, explained(), 260, (model, each) => agreementPanel(model, state.against, each)));
  append(root, [
    lines,
    h("p", { class: "key" }, PREDICTIONS.map(([, text, title, dash], i) => h("span", { title },
      s("svg", { width: 30, height: 10, "aria-hidden": "true" }, s("line", { class: `series-${i}`, x1: 0, x2: 30, y1: 5, y2: 5, "stroke-dasharray": dash })), text))),
    toolbar(segmented("Predicted by", PREDICTIONS.slice(1).map(([key, text, title]) => [key, text, title]), state.against, (v) => { state.against = v; redrawCloud(); })),
    cloud,
  ]);
  onModels(() => { redrawLines(); redrawCloud(); });
}

function exponentPanel(model, width) {
  const found = model.explain.exponents;
  const series = PREDICTIONS.filter(([key]) => found[key]);
  // The small-step exponent may lie far outside where steps are large; it does not set the frame.
  const spread = found.measured.std || [];
  const edge = (sign) => found.measured.mean.map((value, i) => value + sign * (spread[i] || 0));
  const [low, high] = extent([...series.filter(([key]) => key !== "small_step").flatMap(([key]) => found[key].mean), ...edge(1), ...edge(-1), 0], 0.1);
  const small = found.small_step ? found.small_step.mean.filter(known) : [];
  const far = small.some((value) => value < low - (high - low) / 2 || value > high + (high - low) / 2);
  const chart = frame({
    width, height: 230, x: { domain: [-0.4, found.layer.length - 0.6], label: "layer", ticks: layerTicks(found.layer.length, width) }, y: { domain: far ? [low, high] : extent([...small, low, high], 0), label: "nats per layer" },
    label: `Predicted and measured exponents by layer, ${model.name}`, margin: { top: 8 }, bleed: 1,
  });
  const { x, y, marks, plot } = chart;
  marks.append(s("line", { class: "axis", x1: plot.left, x2: plot.right, y1: y(0), y2: y(0) }));
  const along = (values) => values.map((value, i) => [x(i), y(value)]);
  marks.append(s("path", { class: "band", d: band(along(edge(1)), along(edge(-1))), fill: "var(--ink)" }));
  series.forEach(([key, , , dash]) => {
    const at = PREDICTIONS.findIndex(([name]) => name === key);
    marks.append(s("path", { class: `curve series-${at}`, d: path(along(found[key].mean)), "stroke-dasharray": dash }));
    if (found.layer.length === 1) marks.append(s("circle", { class: `curve series-${at}`, cx: x(0), cy: y(found[key].mean[0]), r: 3 })); // no line has one point
  });
  walkable(chart, found.layer.map((layer, i) => ({
    x: x(i), y: plot.top, head: `layer ${layer}`,
    rows: series.map(([key, text]) => ({ name: text, value: signed(found[key].mean[i]) })),
  })));
  return h("div", { class: "panel" }, h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), model.name), chart.svg,
    h("p", { class: "reading" }, `Above zero the sub-layer sharpens, below it smooths. The band is one standard deviation over inputs.${far ? " The small-step exponent leaves the frame." : ""}`));
}

const layerTicks = (count, width) => range(count).filter((i) => i % Math.max(1, Math.ceil((count * 26) / width)) === 0);

function agreementPanel(model, against, width) {
  const { rows, agreement } = model.explain;
  const [predicted, measured] = [rows[against], rows.measured];
  const span = (values) => { const most = Math.max(...extent(values, 0.08).map(Math.abs)) || 1; return [-most, most]; };
  const size = Math.min(width, 330);
  const chart = frame({
    width: size, height: size * 0.86, x: { domain: span(predicted), label: "predicted, nats", count: 4, grid: true }, y: { domain: span(measured), label: "measured, nats", count: 4 },
    label: `Predicted against measured, ${model.name}`, margin: { top: 8 },
  });
  const { x, y, marks, plot } = chart;
  append(marks, [
    s("rect", { class: "agree", x: x(0), y: plot.top, width: plot.right - x(0), height: y(0) - plot.top }),
    s("rect", { class: "agree", x: plot.left, y: y(0), width: x(0) - plot.left, height: plot.bottom - y(0) }),
    s("line", { class: "axis", x1: plot.left, x2: plot.right, y1: y(0), y2: y(0) }),
    s("line", { class: "axis", x1: x(0), x2: x(0), y1: plot.top, y2: plot.bottom }),
    predicted.map((value, i) => s("circle", { class: "dot", cx: x(value), cy: y(measured[i]), r: 2.6, fill: model.colour })),
  ]);
  walkable(chart, predicted.map((value, i) => ({
    x: x(value), y: y(measured[i]), head: `layer ${rows.layer[i]}, input ${rows.input[i]}`,
    rows: [{ name: "predicted", value: signed(value) }, { name: "measured", value: signed(measured[i]) }],
  })), { both: true });
  const found = agreement[against];
  return h("div", { class: "panel", "data-against": against }, h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), model.name), chart.svg,
    found && found.count > 0 && h("p", { class: "reading" }, `Same sign in ${percent(found.accuracy)} of ${found.count} (always saying the commoner sign: ${percent(found.majority)}); rank correlation ${show(found.spearman, 2)}${known(found.low) ? ` [${show(found.low, 2)}, ${show(found.high, 2)}]` : ""}.`));
}
