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

function niceStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((step) => step >= rough * 0.999) || 10 * power;
}

function linearScale([low, high], [from, to], count = 5) {
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  const scale = (value) => from + ((value - low) / (high - low)) * (to - from);
  scale.invert = (position) => low + ((position - from) / (to - from)) * (high - low);
  const step = niceStep(high - low, count);
  scale.ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) scale.ticks.push(Number((k * step).toPrecision(12)));
  scale.format = (value) => show(value, 4);
  scale.domain = [low, high];
  return scale;
}

const superscript = (power) => String(power).replace(/[-\d]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]));
