// Eigenvalues of H in the complex plane with the regime's regions, one layer at a time.
function spectraSection(root) {
  const deepest = Math.max(...models.filter((model) => model.explain).map((model) => model.explain.spectra.length));
  const state = { layer: 0, folding: "both", of: "layer", frame: "layer" };
  const box = h("div", { class: "figure-body", id: "spectra-charts" });
  const redraw = responsive(box, (width) => {
    const most = planeSize(state);
    return [panels(width, explained(), 300, (model, each) => spectrumPanel(model, each, state, most)), sidesKey(state)];
  });
  const set = (name) => (value) => { state[name] = value; redraw(); };
  append(root, [
    toolbar(
      slider("Layer", { min: 0, max: deepest - 1, value: 0, play: true }, set("layer")),
      segmented("Folding", [["raw", "before", "λ of the weights alone"], ["folded", "after", "sλ with the normalisation’s weight, centring, step s and LayerScale"], ["both", "both"]], state.folding, set("folding")),
      segmented("Eigenvalues of", [["layer", "Σ heads", "H = Σ_h H_h, what acts on the mean token"], ["heads", "each head"]], state.of, set("of")),
      segmented("Frame", [["layer", "this layer"], ["all", "all layers"]], state.frame, set("frame"))),
    box,
  ]);
  onModels(redraw);
}

const clouds = (layer, state) => ["raw", "folded"]
  .filter((name) => layer && layer[name] && (state.folding === "both" || state.folding === name))
  .map((name) => ({ name, condition: layer[name].condition, ...layer[name][state.of] }));

const SIDES = [["sharp", "left of zero"], ["zero", "zero: a direction that H takes away"], ["smooth", "right of zero"]];
const sideOf = (re, im) => (re === 0 && im === 0 ? "zero" : re < 0 ? "sharp" : "smooth");
const sidesIn = ({ re, im }) => re.map((value, i) => sideOf(value, im[i]));

// The colours that are there: H has zeros where value heads are shared.
function sidesKey(state) {
  const there = new Set(explained().flatMap((model) => clouds(model.explain.spectra[state.layer], state).flatMap(sidesIn)));
  return h("p", { class: "key" }, SIDES.filter(([side]) => there.has(side)).map(([side, text]) => h("span", {}, h("i", { class: `swatch fill-${side}` }), text)));
}

// The same frame for all models; a few far eigenvalues do not push the others into one spot.
function planeSize(state) {
  const layers = explained().flatMap((model) => (state.frame === "all" ? model.explain.spectra : [model.explain.spectra[state.layer]]));
  const sizes = layers.flatMap((layer) => clouds(layer, state).flatMap(({ re, im }) => re.map((value, i) => Math.hypot(value, im[i]))));
  return Math.max(Math.min(quantile(sizes, 1), 4 * quantile(sizes, 0.98)) * 1.12 || 1, 1e-9);
}

function spectrumPanel(model, width, state, most) {
  const layer = model.explain.spectra[state.layer];
  const title = h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), `${model.name}, layer ${state.layer}`);
  if (!layer) return h("div", { class: "panel" }, title, h("p", { class: "absent" }, `has ${model.explain.spectra.length} layers only`));
  const size = Math.min(width, 380);
  const chart = frame({
    width: size, height: size, x: { domain: [-most, most], label: "real part", grid: true, count: 4 }, y: { domain: [-most, most], label: "imaginary part", count: 4 },
    label: `Eigenvalues of H, layer ${state.layer} of ${model.name}`, margin: { top: 8 }, bleed: 0,
  });
  drawRegions(chart, most);
  const outside = clouds(layer, state).map((cloud) => drawCloud(chart, cloud, most)).reduce((a, b) => a + b, 0);
  return h("div", { class: "panel", "data-layer": state.layer }, title, chart.svg, spectrumNote(layer, state, outside));
}

// Corollary 3's intervals, the disc |1 + λ| < 1 in which the mean token shrinks, and the half-plane in which it grows.
function drawRegions({ x, y, plot, marks }, most) {
  append(marks, [
    s("rect", { class: "region-smooth", x: x(0), y: plot.top, width: plot.right - x(0), height: plot.height }),
    s("circle", { class: "region-sharp", cx: x(-1), cy: y(0), r: x(1) - x(0) }),
    s("line", { class: "axis", x1: plot.left, x2: plot.right, y1: y(0), y2: y(0) }),
    s("line", { class: "axis", x1: x(0), x2: x(0), y1: plot.top, y2: plot.bottom }),
    s("line", { class: "interval-sharp", x1: x(Math.max(-most * 1.2, -1)), x2: x(0), y1: y(0), y2: y(0) }),
    s("line", { class: "interval-smooth", x1: x(0), x2: x(most * 1.2), y1: y(0), y2: y(0) }),
  ]);
}

function drawCloud({ x, y, marks }, { name, re, im }, most) {
  const edge = most * 0.995;
  const dots = { sharp: "", smooth: "", far: "", zero: "" }; // the last lies on top
  let outside = 0;
  re.forEach((value, i) => {
    const far = Math.abs(value) > most || Math.abs(im[i]) > most;
    outside += far;
    // A line of no length with round ends is a dot: thousands of them in one element.
    dots[far ? "far" : sideOf(value, im[i])] += `M${x(clamp(value, -edge, edge)).toFixed(1)} ${y(clamp(im[i], -edge, edge)).toFixed(1)}h0`;
  });
  marks.append(s("g", { class: `cloud ${name}` }, Object.entries(dots).filter(([, d]) => d).map(([kind, d]) => s("path", { class: kind, d }))));
  return outside;
}

const manyZeros = (share) => share >= 0.05; // as theory_words.py has it

function spectrumNote(layer, state, outside) {
  const parts = clouds(layer, state).map(({ name, condition, ...values }) => {
    const sides = sidesIn(values);
    const share = (wanted) => sides.filter((side) => side === wanted).length / sides.length;
    const beside = manyZeros(share("zero")) ? ` and ${percent(share("zero"))} at it` : "";
    return `${name === "raw" ? "Before" : "After"} folding ${percent(share("sharp"))} lie left of zero${beside}${known(condition) ? `, eigenvectors’ condition ${show(condition, 2)}` : ""}.`;
  });
  if (outside) parts.push(`Outside the frame and drawn at its edge: ${outside}.`);
  return h("p", { class: "reading" }, parts.join(" "));
}
