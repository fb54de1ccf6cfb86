// Shares of type (1) and type (2) over layers, heads and inputs, and how the verdict lies over depth.
const TYPES = [["sharpening", "type (2), sharpening", "fill-sharp"], ["mixed", "both tie", "fill-zero"], ["smoothing", "type (1), smoothing", "fill-smooth"]];

function sharesSection(root) {
  const state = { count: "acting" };
  const box = h("div", { class: "figure-body", id: "shares-chart" });
  const redraw = responsive(box, (width) => [
    ...explained().filter((model) => model.explain.types[state.count]).map((model) => shareRow(model, model.explain.types[state.count], width)),
    h("p", { class: "key" }, TYPES.map(([, text, fill]) => h("span", {}, h("i", { class: `swatch ${fill}` }), text))),
  ]);
  append(root, [
    toolbar(segmented("Which H", [["acting", "as it acts", "folded weights and the step that the normalisation makes"], ["paper", "as in the paper", "raw weights, only the listed eigenvalues"]], state.count, (v) => { state.count = v; redraw(); })),
    box,
  ]);
  onModels(redraw);
}

function shareRow(model, types, width) {
  const top = narrow() ? 35 : 19; // a narrow screen has two lines above the bar
  const [tall, height] = [20, top + 27];
  const said = TYPES.map(([kind, text]) => `${percent(types.share[kind])} ${text}`).join(", ");
  const svg = s("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${model.name}: ${said}` });
  const [low, high] = types.interval || [];
  append(svg, [
    s("text", { class: "chart-title", x: 0, y: 12 }, short(model.name, narrow() ? width : width / 2)),
    s("text", narrow() ? { x: 0, y: 28 } : { x: width, y: 12, "text-anchor": "end" }, `type (2) in ${percent(types.share.sharpening)} of ${types.count} cases${known(low) ? `, 95 % interval ${percent(low)} to ${percent(high)}` : ""}`),
  ]);
  let from = 0;
  for (const [kind, text, fill] of TYPES) {
    const share = types.share[kind] || 0;
    if (!share) continue;
    append(svg, [
      s("rect", { class: fill, x: from, y: top, width: Math.max(0, width * share - 1), height: tall }, s("title", {}, `${text}: ${percent(share)}`)),
      width * share > 46 && s("text", { class: "on-bar", x: from + 7, y: top + 14 }, percent(share)),
    ]);
    from += width * share;
  }
  return svg;
}
