// Eigenvalues of H in the complex plane with the regime's regions, one layer at a time.
function spectraSection(root) {
  const deepest = Math.max(...models.filter((model) => model.explain).map((model) => model.explain.spectra.length));
  const state = { layer: 0, folding: "both", of: "layer" };
  const box = h("div", { class: "figure-body", id: "spectra-charts" });
  const redraw = responsive(box, (width) => panels(width, explained(), 300, (model, each) => spectrumPanel(model, each, state)));
  append(root, [
    toolbar(
      slider("Layer", { min: 0, max: deepest - 1, value: 0, play: true }, (value) => { state.layer = value; redraw(); }),
      segmented("Folding", [["raw", "before", "the weights alone"], ["folded", "after", "with the normalisation's weight, centring and LayerScale"], ["both", "both"]], state.folding, (v) => { state.folding = v; redraw(); }),
      segmented("Eigenvalues of", [["layer", "Σ heads", "H = Σ_h H_h, what acts on the mean token"], ["heads", "each head"]], state.of, (v) => { state.of = v; redraw(); })),
    box,
  ]);
  onModels(redraw);
}

const clouds = (layer, state) => ["raw", "folded"].filter((name) => state.folding === "both" || state.folding === name).filter((name) => layer[name]).map((name) => ({ name, ...layer[name][state.of] }));

// One frame for all layers, so that moving the slider moves eigenvalues and not axes.
function planeSize(state) {
  const sizes = explained().flatMap((model) => model.explain.spectra.flatMap((layer) => clouds(layer, state).flatMap(({ re, im }) => re.map((value, i) => Math.hypot(value, im[i])))));
  return Math.max(quantile(sizes, 0.99) * 1.12 || 1, 1e-6);
}

function spectrumPanel(model, width, state) {
  const layer = model.explain.spectra[state.layer];
  if (!layer) return h("div", { class: "panel" }, h("h4", {}, model.name), h("p", { class: "absent" }, `has ${model.explain.spectra.length} layers only`));
  const most = Math.max(planeSize(state), 1e-9);
  const size = Math.min(width, 380);
  const chart = frame({
    width: size, height: size, x: { domain: [-most, most], label: "Re λ", grid: true, count: 5 }, y: { domain: [-most, most], label: "Im λ", count: 5 },
    label: `Eigenvalues of H, layer ${state.layer} of ${model.name}`, margin: { top: 8 },
  });
  drawRegions(chart, most, state.folding === "raw" || !known(layer.step) ? 1 : layer.step);
  let outside = 0;
  for (const cloud of clouds(layer, state)) outside += drawCloud(chart, cloud, most);
  return h("div", { class: "panel", "data-layer": state.layer },
    h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), `${model.name}, layer ${state.layer}`),
    chart.svg, spectrumNote(layer, state, outside));
}

function drawRegions({ x, y, plot, marks }, most, step) {
  append(marks, [
    s("rect", { class: "region-smooth", x: x(0), y: plot.top - 4, width: plot.right - x(0), height: plot.height + 8 }),
    s("circle", { class: "region-sharp", cx: x(-1 / step), cy: y(0), r: Math.abs(x(1 / step) - x(0)) }),
    s("line", { class: "axis", x1: plot.left, x2: plot.right, y1: y(0), y2: y(0) }),
    s("line", { class: "axis", x1: x(0), x2: x(0), y1: plot.top, y2: plot.bottom }),
    s("line", { class: "interval-sharp", x1: x(Math.max(-most * 1.2, -1)), x2: x(0), y1: y(0), y2: y(0) }),
    s("line", { class: "interval-smooth", x1: x(0), x2: x(most * 1.2), y1: y(0), y2: y(0) }),
  ]);
}

function drawCloud({ x, y, marks }, { name, re, im }, most) {
  let outside = 0;
  const edge = most * 0.995;
  const group = s("g", { class: `cloud ${name}` });
  re.forEach((value, i) => {
    const far = Math.abs(value) > most || Math.abs(im[i]) > most;
    outside += far;
    group.append(s("circle", { class: `${value < 0 ? "sharp" : "smooth"}${far ? " far" : ""}`, cx: x(clamp(value, -edge, edge)).toFixed(1), cy: y(clamp(im[i], -edge, edge)).toFixed(1), r: 2.4 }));
  });
  marks.append(group);
  return outside;
}

function spectrumNote(layer, state, outside) {
  const parts = clouds(layer, state).map(({ name, re, share }) => {
    const negative = share ? share.re_negative : re.filter((value) => value < 0 && value >= -1).length / re.length;
    const positive = share ? share.re_positive : re.filter((value) => value > 0).length / re.length;
    return `${name === "raw" ? "before" : "after"} folding: ${percent(negative)} with −1 ≤ Re λ < 0, ${percent(positive)} with Re λ > 0`;
  });
  if (known(layer.condition)) parts.push(`condition of the eigenvectors ${show(layer.condition, 2)}`);
  if (outside) parts.push(`${outside} outside the frame, drawn at its edge`);
  return h("p", { class: "reading" }, parts.join("; "), ".");
}
