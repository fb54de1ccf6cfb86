// Numbers as people read them, scales and their ticks.
const MINUS = "\u2212";

function show(value, digits = 3) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return text.replace(/-/g, MINUS);
}

const signed = (value, digits = 3) => (known(value) && value > 0 ? "+" : "") + show(value, digits);
const percent = (value) => (known(value) ? `${Math.round(value * 100)}\u00a0%` : "–");

function niceStep(span, count, whole) {
  const rough = Math.max(span / Math.max(1, count), whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((step) => step >= rough * 0.999 && !(whole && step % 1)) || 10 * power;
}

function linearScale([low, high], [from, to], count = 5, whole = false) {
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  const scale = (value) => from + ((value - low) / (high - low)) * (to - from);
  scale.invert = (position) => low + ((position - from) / (to - from)) * (high - low);
  const step = niceStep(high - low, count, whole);
  scale.ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) scale.ticks.push(Number((k * step).toPrecision(12)));
  scale.format = (value) => show(value, 4);
  scale.domain = [low, high];
  return scale;
}

// Logarithmic: ticks at powers of ten, or at 1-2-5 when fewer than two decades are shown.
function logScale([low, high], [from, to], count = 5) {
  const [a, b] = [Math.log10(low), Math.log10(high > low ? high : low * 10)];
  const scale = (value) => from + ((Math.log10(Math.max(value, low / 1e3)) - a) / (b - a)) * (to - from);
  scale.invert = (position) => 10 ** (a + ((position - from) / (to - from)) * (b - a));
  const every = Math.max(1, Math.ceil((b - a) / count));
  const within = (value) => value >= low * 0.999 && value <= high * 1.001;
  scale.ticks = [];
  for (let k = Math.floor(a); k <= Math.ceil(b); k++) {
    if (b - a < 2) scale.ticks.push(...[1, 2, 5].map((m) => m * 10 ** k).filter(within));
    else if (k % every === 0 && within(10 ** k)) scale.ticks.push(10 ** k);
  }
  scale.format = (value) => {
    const power = Math.round(Math.log10(value));
    return Math.abs(power) > 3 ? `10${superscript(power)}` : show(value, 3);
  };
  scale.domain = [low, high];
  return scale;
}

const superscript = (power) => String(power).replace(/[-\d]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]));

function extent(values, pad = 0.05) {
  const finite = values.filter(known);
  if (!finite.length) return [0, 1];
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const room = (high - low || Math.abs(high) || 1) * pad;
  return [low - room, high + room];
}

function quantile(values, q) {
  const sorted = values.filter(known).sort((a, b) => a - b);
  if (!sorted.length) return NaN;
  const at = (sorted.length - 1) * q;
  const low = Math.floor(at);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
