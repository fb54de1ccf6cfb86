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
  const [tall, label] = [22, narrow() ? 0 : Math.min(240, width * 0.3)];
  const wide = width - label;
  const svg = s("svg", { class: "chart", width, height: narrow() ? 44 : 30, role: "img", "aria-label": `${model.name}: ${TYPES.map(([kind, text]) => `${percent(types.share[kind])} ${text}`).join(", ")}` });
  const top = narrow() ? 18 : 4;
  svg.append(s("text", { class: "chart-title", x: 0, y: narrow() ? 12 : 20 }, model.name.length > 34 ? `${model.name.slice(0, 33)}…` : model.name));
  let from = label;
  for (const [kind, text, fill] of TYPES) {
    const share = types.share[kind] || 0;
    if (!share) continue;
    append(svg, [
      s("rect", { class: fill, x: from, y: top, width: wide * share, height: tall }, s("title", {}, `${text}: ${percent(share)}`)),
      wide * share > 46 && s("text", { class: "on-bar", x: from + 7, y: top + 15 }, percent(share)),
    ]);
    from += wide * share;
  }
  const [low, high] = types.interval || [];
  if (known(low)) {
    const at = (share) => label + wide * share;
    append(svg, [s("path", { class: "whisker", d: `M${at(low)} ${top + 7}V${top + 15}M${at(low)} ${top + 11}H${at(high)}M${at(high)} ${top + 7}V${top + 15}` }, s("title", {}, `95 % interval of type (2): ${percent(low)} to ${percent(high)}`))]);
  }
  return svg;
}
