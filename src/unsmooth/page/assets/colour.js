// Colours that colour-blind people can tell apart; lines also differ in dash and marker.
const DASHES = ["", "7 3", "2 2.5", "9 3 2 3", "12 4", "4 2 1 2"];
const modelColour = (index) => `var(--model-${index % 6})`;
const modelDash = (index) => DASHES[index % DASHES.length];

// Blue (smoothing) through neutral to orange (sharpening): safe for all common kinds of colour blindness.
const DIVERGING = [[18, 72, 140], [74, 134, 196], [160, 197, 228], [238, 236, 230], [248, 194, 139], [221, 124, 48], [150, 64, 5]];
// Cividis, made to look the same with and without colour blindness.
const SEQUENTIAL = [[0, 34, 78], [35, 62, 108], [85, 91, 108], [123, 121, 120], [165, 152, 113], [212, 186, 88], [254, 232, 56]];

function colourAt(stops, share) {
  const at = clamp(known(share) ? share : 0, 0, 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((channel, i) => Math.round(channel + (stops[low + 1][i] - channel) * (at - low)));
}

const css = (rgb) => `rgb(${rgb.join(",")})`;
const diverging = (value, most) => colourAt(DIVERGING, 0.5 + value / (2 * most || 1));
const sequential = (share) => colourAt(SEQUENTIAL, share);
// Black or white, whichever is readable on that colour.
const readable = (rgb) => (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#111" : "#fff");

// A bar that says what the colours mean.
function colourBar(stops, from, to, middle) {
  const gradient = stops.map((rgb, i) => `${css(rgb)} ${(100 * i) / (stops.length - 1)}%`).join(", ");
  return h("div", { class: "colour-bar" },
    h("span", {}, from),
    h("i", { style: { background: `linear-gradient(to right, ${gradient})` } }, middle ? h("b", {}, middle) : null),
    h("span", {}, to));
}

function marker(index, x, y, size, attributes) {
  const r = size;
  switch (index % 6) {
    case 0: return s("circle", { cx: x, cy: y, r, ...attributes });
    case 1: return s("rect", { x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8, ...attributes });
    case 2: return s("path", { d: `M${x} ${y - r * 1.2}L${x + r * 1.15} ${y + r * 0.9}H${x - r * 1.15}Z`, ...attributes });
    case 3: return s("path", { d: `M${x} ${y - r * 1.3}L${x + r * 1.3} ${y}L${x} ${y + r * 1.3}L${x - r * 1.3} ${y}Z`, ...attributes });
    case 4: return s("path", { d: `M${x} ${y + r * 1.2}L${x + r * 1.15} ${y - r * 0.9}H${x - r * 1.15}Z`, ...attributes });
    default: return s("path", { d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}`, "stroke-width": 1.5, ...attributes });
  }
}
