// Heat maps over layers and heads: the exponent of every head, and how spread out its attention is.
function headsSection(root) {
  const views = {
    exponent: { title: "exponent γ", get: (model) => model.explain.heads.exponent, text: (value) => `${signed(value)} nats per layer` },
    entropy: { title: "attention entropy", get: (model) => model.explain.heads.entropy, text: (value) => `${percent(value)} of log n` },
  };
  const state = { view: "exponent" };
  const box = h("div", { class: "figure-body", id: "heads-charts" });
  const scale = h("div", { class: "figure-body" });
  const redraw = responsive(box, (width) => {
    const view = views[state.view];
    const all = explained().flatMap((model) => view.get(model).flat()).filter(known);
    const most = quantile(all.map(Math.abs), 0.98) || 1;
    const colour = state.view === "exponent" ? (value) => diverging(value, most) : (value) => sequential(value);
    scale.replaceChildren(state.view === "exponent"
      ? colourBar(DIVERGING, `smooths, ${all.some((value) => value < -most) ? "≤ " : ""}${signed(-most)}`, `${all.some((value) => value > most) ? "≥ " : ""}${signed(most)}, sharpens`, "0")
      : colourBar(SEQUENTIAL, "0: one token", "1: all tokens alike"));
    return panels(width, explained(), 230, (model, each) => heatMap(model, view, colour, each));
  });
  append(root, [
    toolbar(segmented("Show", Object.entries(views).map(([key, view]) => [key, view.title]), state.view, (v) => { state.view = v; redraw(); })),
    scale, box,
  ]);
  onModels(redraw);
}

function heatMap(model, view, colour, width) {
  const cells = view.get(model);
  const heads = Math.max(...cells.map((row) => row.length));
  const left = 40;
  const wide = Math.min((width - left - 4) / heads, 56);
  const tall = clamp(330 / cells.length, 9, 26);
  const [total, height] = [left + wide * heads + 2, tall * cells.length + 36];
  const svg = s("svg", { class: "chart", width: total, height, viewBox: `0 0 ${total} ${height}`, role: "img", "aria-label": `${view.title} of every layer and head, ${model.name}` });
  const stops = [];
  cells.forEach((row, layer) => {
    if (layer % Math.ceil(14 / tall) === 0) svg.append(s("text", { x: left - 7, y: tall * (layer + 0.5), dy: "0.32em", "text-anchor": "end" }, layer));
    row.forEach((value, head) => {
      const rgb = colour(value);
      svg.append(s("rect", { class: "cell", x: left + wide * head, y: tall * layer, width: wide - 1, height: tall - 1, fill: known(value) ? css(rgb) : "none" }));
      if (wide > 40 && tall > 18 && known(value)) svg.append(s("text", { class: "on-cell", x: left + wide * (head + 0.5) - 0.5, y: tall * (layer + 0.5), dy: "0.34em", "text-anchor": "middle", style: { fill: readable(rgb) } }, view.title === "exponent γ" ? show(value, 2) : percent(value)));
      stops.push({ x: left + wide * (head + 0.5), y: tall * (layer + 0.5), head: `layer ${layer}, head ${head}`, rows: [{ name: view.title, value: view.text(value) }] });
    });
  });
  range(heads).forEach((head) => svg.append(s("text", { x: left + wide * (head + 0.5), y: tall * cells.length + 14, "text-anchor": "middle" }, heads > 16 && head % 2 ? "" : head)));
  append(svg, [
    s("text", { class: "axis-label", x: left + (wide * heads) / 2, y: height - 5, "text-anchor": "middle" }, "head"),
    s("text", { class: "axis-label", transform: `translate(11 ${(tall * cells.length) / 2}) rotate(-90)`, "text-anchor": "middle" }, "layer"),
  ]);
  walkable({ svg, plot: { left, right: total, top: 0, bottom: tall * cells.length } }, stops, { both: true });
  return h("div", { class: "panel" }, h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), model.name), svg);
}
