// A layer to play with: its regime over eigenvalues and temperature, and 128 repetitions of it, computed here.
const LAYERS = 128;
const GRID = { across: 19, down: 9, centre: [-1.5, 1.5], temperature: [0.1, 10] };
const SMALL = { n: 24, d: 12, layers: 48, seed: 7 };

const css = (rgb) => `rgb(${rgb.join(",")})`;

// Blue smooths, orange sharpens: the palette's colours, from the page's data.
function diverging(value) {
  const at = clamp(0.5 + value / 2, 0, 1) * (data.diverging.length - 1);
  const low = Math.min(Math.floor(at), data.diverging.length - 2);
  return data.diverging[low].map((channel, i) => Math.round(channel + (data.diverging[low + 1][i] - channel) * (at - low)));
}

function playgroundSection(root) {
  const state = { low: -1, high: 0, temperature: 1, norm: "none", sign: 1, form: "symmetric", seed: 1 };
  const curves = h("div", { class: "figure-body", id: "play-curve" });
  const diagram = h("div", { class: "figure-body", id: "play-phase" });
  const verdict = h("p", { class: "verdict", role: "status", id: "play-verdict" });
  const update = () => { redrawCurve(); redrawPhase(); };
  const redrawCurve = responsive(curves, (width) => playCurve(state, width, verdict));
  const redrawPhase = responsive(diagram, (width) => phaseDiagram(state, width, (centre, temperature) => {
    const half = (state.high - state.low) / 2;
    [state.low, state.high, state.temperature] = [centre - half, centre + half, temperature];
    controls.sync();
    update();
  }, () => redrawPhase()));
  const controls = playControls(state, update);
  append(root, [controls.box, h("div", { class: "play-pair" }, h("div", {}, diagram), h("div", {}, curves, verdict))]);
}

function playControls(state, update) {
  const set = (change) => { change(); update(); };
  const low = slider("smallest λ of H", { min: -2, max: 2, step: 0.05, value: state.low, show: (v) => show(v) }, (v) => set(() => { state.low = v; if (state.high < v) high.set(v); }));
  const high = slider("largest λ of H", { min: -2, max: 2, step: 0.05, value: state.high, show: (v) => show(v) }, (v) => set(() => { state.high = v; if (state.low > v) low.set(v); }));
  const heat = slider("attention temperature", { min: -1, max: 1, step: 0.05, value: 0, show: (v) => show(10 ** v, 2), ends: ["sharp", "flat"] }, (v) => set(() => { state.temperature = 10 ** v; }));
  const preset = (text, from, to) => h("button", { type: "button", class: "preset", onclick: () => { state.low = from; state.high = to; sync(); update(); } }, text);
  const sync = () => {
    const [from, to, t] = [state.low, state.high, state.temperature];
    [low, high, heat].forEach((box, i) => {
      const input = find("input", box);
      input.value = [from, to, Math.log10(t)][i];
      find("output", box).textContent = [show(from), show(to), show(t, 2)][i];
    });
  };
  const box = h("div", { class: "play-controls" },
    h("div", { class: "presets" }, preset("sharpening, [−1, 0]", -1, 0), preset("smoothing, [0, 1]", 0, 1), preset("balanced, [−1, 1]", -1, 1), preset("beyond, [−2, −1]", -2, -1)),
    low, high, heat,
    segmented("Normalisation", [["none", "none"], ["pre", "Pre-LN"], ["post", "Post-LN"]], state.norm, (v) => set(() => { state.norm = v; })),
    segmented("LN weights", [["1", "positive"], ["-1", "negative"]], "1", (v) => set(() => { state.sign = Number(v); })),
    segmented("Form of H", [["symmetric", "symmetric", "V orthogonal: H is normal"], ["general", "V Λ V⁻¹", "V random: H is far from normal"]], state.form, (v) => set(() => { state.form = v; })),
    h("button", { type: "button", class: "preset", onclick: () => set(() => { state.seed += 1; }) }, "another random layer"));
  return { box, sync };
}

const layerOf = (state, size) => ({ ...randomLayer({ ...state, ...size }), norm: state.norm === "none" ? null : state.norm });

function playCurve(state, width, verdict) {
  const curve = simulate({ ...layerOf(state, { n: 64, d: 32 }), layers: LAYERS });
  const logs = curve.map((value) => Math.log10(Math.max(value, 1e-17)));
  const chart = frame({
    width, height: 300, x: { domain: [0, LAYERS], label: "layers" }, y: { domain: [Math.min(-2, ...logs) - 0.3, Math.max(3, ...logs) + 0.3], label: "HFC/LFC", format: (v) => (v % 1 ? "" : `10${superscript(v)}`) },
    label: "Simulated HFC/LFC over 128 layers", margin: { top: 8 },
  });
  const { x, y, marks, plot } = chart;
  const change = logs[LAYERS] - logs[0];
  const kind = Math.abs(change) < 0.05 ? "unclear" : change > 0 ? "sharp" : "smooth";
  append(marks, [
    s("line", { class: "axis dashed", x1: plot.left, x2: plot.right, y1: y(logs[0]), y2: y(logs[0]) }),
    s("path", { class: `curve thick stroke-${kind}`, d: path(logs.map((value, i) => [x(i), y(value)])) }),
  ]);
  walkable(chart, () => curve.map((value, i) => ({ x: x(i), y: y(logs[i]), head: `after ${i} layers`, rows: [{ name: "HFC/LFC", value: show(value) }] })));
  verdict.className = `verdict ${kind}`;
  verdict.textContent = `After ${LAYERS} layers HFC/LFC went from ${show(curve[0])} to ${show(curve[LAYERS])}: ${{ sharp: "it sharpens", smooth: "it smooths", unclear: "hardly any change" }[kind]}.`;
  return chart.svg;
}

// Each cell is the same kind of layer, smaller (24 tokens, 12 features, 48 layers); only its sign is read off.
// Cells depend on the width of the range, not on its centre, so dragging the handle computes nothing.
let phase = { key: "", cells: [], timer: 0 };
function phaseCells(state, done) {
  const half = (state.high - state.low) / 2;
  const key = [half.toFixed(3), state.norm, state.sign, state.form].join();
  if (phase.key !== key) {
    clearTimeout(phase.timer);
    phase.timer = setTimeout(() => { phase = { key, cells: computeCells(state, half), timer: 0 }; done(); }, phase.cells.length ? 60 : 0);
  }
  return phase.cells;
}

function computeCells({ norm, sign, form }, half) {
  return range(GRID.down * GRID.across).map((i) => {
    const [row, column] = [Math.floor(i / GRID.across), i % GRID.across];
    const centre = GRID.centre[0] + ((GRID.centre[1] - GRID.centre[0]) * column) / (GRID.across - 1);
    const temperature = GRID.temperature[0] * (GRID.temperature[1] / GRID.temperature[0]) ** (row / (GRID.down - 1));
    const curve = simulate({ ...layerOf({ norm, sign, form, low: centre - half, high: centre + half, temperature }, SMALL), layers: SMALL.layers });
    return { centre, temperature, rate: (Math.log(Math.max(curve[SMALL.layers], 1e-17)) - Math.log(curve[0])) / SMALL.layers };
  });
}

function phaseDiagram(state, width, moved, done) {
  const cells = phaseCells(state, done);
  const stepX = (GRID.centre[1] - GRID.centre[0]) / (GRID.across - 1);
  const chart = frame({
    width, height: 300, label: "Phase diagram: does the layer smooth or sharpen", margin: { top: 8 },
    x: { domain: [GRID.centre[0] - stepX / 2, GRID.centre[1] + stepX / 2], label: "centre of H's eigenvalue range" }, y: { domain: [-1.125, 1.125], label: "attention temperature", ticks: [-1, -0.5, 0, 0.5, 1], format: (v) => show(10 ** v, 2) },
  });
  const { svg, x, y, marks, plot } = chart;
  const [wide, tall] = [plot.width / GRID.across + 0.6, plot.height / GRID.down + 0.6];
  const most = 0.06;
  for (const { centre, temperature, rate } of cells) {
    marks.append(s("rect", { x: x(centre) - wide / 2, y: y(Math.log10(temperature)) - tall / 2, width: wide, height: tall, fill: css(diverging(Math.sign(rate) * Math.sqrt(Math.min(1, Math.abs(rate) / most)))) }));
  }
  const centre = (state.low + state.high) / 2;
  const handle = s("circle", { class: "handle", cx: x(clamp(centre, ...GRID.centre)), cy: y(Math.log10(state.temperature)), r: 9, tabindex: 0, role: "slider", "aria-label": "centre of the eigenvalue range and temperature", "aria-valuetext": `centre ${show(centre)}, temperature ${show(state.temperature, 2)}`, "aria-valuenow": centre.toFixed(2) });
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    moved(clamp(x.invert(event.clientX - box.left), ...GRID.centre), 10 ** clamp(y.invert(event.clientY - box.top), -1, 1));
  };
  // The diagram is drawn anew while it is dragged, so the moves are heard on the window.
  svg.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const stop = () => { window.removeEventListener("pointermove", place); window.removeEventListener("pointerup", stop); };
    window.addEventListener("pointermove", place);
    window.addEventListener("pointerup", stop);
    place(event);
  });
  handle.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05] }[event.key] || [];
    if (dx === undefined) return;
    event.preventDefault();
    moved(clamp(centre + dx, ...GRID.centre), 10 ** clamp(Math.log10(state.temperature) + dy, -1, 1));
    find("#play-phase .handle").focus();
  });
  svg.append(handle);
  return [h("div", { class: "colour-bar" }, h("span", {}, "smooths"), h("i", { class: "ramp-diverging" }), h("span", {}, "sharpens")), svg];
}
