// The tokens of one example: their similarity matrix and their distance from the mean token, layer by layer.
function tokensSection(root) {
  const viewed = models.filter((model) => model.tokens);
  const deepest = Math.max(...viewed.map((model) => model.tokens.points.length));
  const state = { layer: deepest - 1, scale: "shared" };
  const box = h("div", { class: "figure-body", id: "token-views" });
  const decoded = new Map(viewed.map((model) => [model.index, decodeTokens(model.tokens)]));
  const picture = viewed.map((model) => model.tokens.picture).find(Boolean);
  const farthest = quantile(viewed.flatMap((model) => model.tokens.distance.flat()), 0.98) || 1;
  const redraw = responsive(box, (width) => panels(width, shown().filter((model) => model.tokens), 330, (model, each) => tokenPanel(model, decoded.get(model.index), state, farthest, each)));
  append(root, [
    toolbar(
      slider("After layer", { min: 0, max: deepest - 1, value: state.layer, play: true, show: (at) => (at ? String(at - 1) : "input") }, (value) => { state.layer = value; redraw(); }),
      segmented("Colours", [["shared", "one scale for all"], ["own", "each layer its own"]], state.scale, (v) => { state.scale = v; redraw(); })),
    h("div", { class: "bars" },
      picture && h("img", { src: picture, alt: "the example", class: "thumbnail" }),
      h("div", {}, "distance from the mean token, ", h("span", {}, "‖x − x̄‖ / ‖x̄‖"), colourBar(SEQUENTIAL, "near", "far")),
      h("div", {}, "cosine similarity", colourBar(DIVERGING.slice().reverse(), "−1", "1", "0"))),
    box,
  ]);
  onModels(redraw);
}

function decodeTokens(view) {
  const bytes = Uint8Array.from(atob(view.cosine), (c) => c.charCodeAt(0));
  const size = (view.size * (view.size + 1)) / 2;
  return { bytes, size };
}

function tokenPanel(model, decoded, state, farthest, width) {
  const view = model.tokens;
  const at = Math.min(state.layer, view.points.length - 1);
  const distance = view.distance[at];
  const most = state.scale === "shared" ? farthest : Math.max(...distance) || 1;
  const least = state.scale === "shared" ? 0 : Math.min(...distance);
  const share = (value) => (value - least) / (most - least || 1);
  const half = Math.min(360, Math.floor((width - 12) / 2));
  return h("div", { class: "panel", "data-point": view.points[at] },
    h("h4", {}, h("i", { class: "swatch", style: { background: model.colour } }), `${model.name}, ${view.points[at]}`),
    h("div", { class: "token-pair" },
      view.grid ? patchMap(view, distance, share, half) : tokenText(view, distance, share, half),
      similarity(view, decoded, at, half)),
    h("p", { class: "reading" }, `HFC/LFC ${show(Math.sqrt(mean(distance.map((value) => value * value))))}, mean cosine ${show(meanCosine(view, decoded, at), 2)} of the tokens shown.`));
}

// Squares of (distance from the mean token / its length) average to (HFC/LFC)².
function patchMap(view, distance, share, side) {
  const [rows, across] = view.grid;
  const canvas = h("canvas", { width: across, height: rows, class: "pixels", style: { width: `${side}px`, height: `${side}px` }, role: "img", "aria-label": "patches coloured by their distance from the mean token" });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(across, rows);
  range(rows * across).forEach((i) => image.data.set([...sequential(share(distance[i + view.prefix])), 255], i * 4));
  pen.putImageData(image, 0, 0);
  return canvas;
}

function tokenText(view, distance, share, side) {
  return h("div", { class: "token-text", style: { width: `${side}px`, height: `${side}px` }, tabindex: 0, role: "group", "aria-label": "tokens coloured by their distance from the mean token" },
    distance.map((value, i) => {
      const rgb = sequential(share(value));
      return h("span", { title: show(value), style: { background: css(rgb), color: readable(rgb) } }, view.labels ? view.labels[i] : i);
    }));
}

function similarity(view, { bytes, size }, at, side) {
  const n = view.size;
  const canvas = h("canvas", { width: n, height: n, class: n > side ? "pixels fine" : "pixels", style: { width: `${side}px`, height: `${side}px` }, role: "img", "aria-label": "cosine similarity of every pair of tokens" });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(n, n);
  const colours = range(256).map((byte) => colourAt(DIVERGING, 1 - byte / 255));
  let k = at * size;
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++, k++) {
      const rgb = colours[bytes[k]];
      image.data.set([...rgb, 255], (i * n + j) * 4);
      image.data.set([...rgb, 255], (j * n + i) * 4);
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

function meanCosine(view, { bytes, size }, at) {
  let [sum, k] = [0, at * size];
  for (let i = 0; i < view.size; i++) for (let j = 0; j <= i; j++, k++) if (j < i) sum += (bytes[k] / 255) * 2 - 1;
  return sum / (size - view.size);
}
