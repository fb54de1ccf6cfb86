// Eq. (1) iterated, as `unsmooth.simulate` does it: X ← X + A X W, with no norm, Pre-LN or Post-LN. Pure functions.
function multiply(a, b, n, k, m, out = new Float64Array(n * m)) {
  out.fill(0);
  for (let i = 0; i < n; i++) {
    for (let l = 0; l < k; l++) {
      const factor = a[i * k + l];
      const [row, at] = [i * m, l * m];
      for (let j = 0; j < m; j++) out[row + j] += factor * b[at + j];
    }
  }
  return out;
}

function layerNorm(x, n, d, weight, eps = 1e-5) {
  const out = new Float64Array(n * d);
  for (let i = 0; i < n; i++) {
    let [sum, squares] = [0, 0];
    for (let j = 0; j < d; j++) sum += x[i * d + j];
    const centre = sum / d;
    for (let j = 0; j < d; j++) squares += (x[i * d + j] - centre) ** 2;
    const scale = 1 / Math.sqrt(squares / d + eps);
    for (let j = 0; j < d; j++) out[i * d + j] = (x[i * d + j] - centre) * scale * (weight ? weight[j] : 1);
  }
  return out;
}

// ‖X − 1x̄ᵀ‖_F / ‖1x̄ᵀ‖_F
function hfcLfc(x, n, d) {
  let [high, low] = [0, 0];
  for (let j = 0; j < d; j++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += x[i * d + j];
    const centre = sum / n;
    low += n * centre * centre;
    for (let i = 0; i < n; i++) high += (x[i * d + j] - centre) ** 2;
  }
  return Math.sqrt(high / low);
}

// HFC/LFC at the start and after each layer; `a` (n×n), `w` (d×d) and `x` (n×d) are row-major.
function simulate({ x, a, w, n, d, layers = 128, norm = null, weight = null }) {
  let state = Float64Array.from(x);
  const curve = [hfcLfc(state, n, d)];
  const [mixed, added] = [new Float64Array(n * d), new Float64Array(n * d)];
  for (let layer = 0; layer < layers; layer++) {
    const input = norm === "pre" ? layerNorm(state, n, d, weight) : state;
    multiply(multiply(a, input, n, n, d, mixed), w, n, d, d, added);
    let size = 0;
    for (let i = 0; i < state.length; i++) { state[i] += added[i]; size += state[i] * state[i]; }
    if (norm === "post") state = layerNorm(state, n, d, weight);
    else if (!norm && size > 0) { size = Math.sqrt(size); for (let i = 0; i < state.length; i++) state[i] /= size; }
    curve.push(hfcLfc(state, n, d));
  }
  return curve;
}

function randomSource(seed) {
  let t = seed >>> 0;
  const uniform = () => { // mulberry32
    t = (t + 0x6d2b79f5) >>> 0;
    let r = Math.imul(t ^ (t >>> 15), t | 1);
    r ^= r + Math.imul(r ^ (r >>> 7), r | 61);
    return ((r ^ (r >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return { uniform, normals: (count, scale = 1) => Float64Array.from({ length: count }, () => normal() * scale) };
}

function transpose(a, n, m) {
  const out = new Float64Array(n * m);
  for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) out[j * n + i] = a[i * m + j];
  return out;
}

// Q of a QR decomposition, by Gram–Schmidt done twice.
function orthogonal(v, d) {
  const q = transpose(v, d, d);
  for (let i = 0; i < d; i++) {
    for (let pass = 0; pass < 2; pass++) {
      for (let k = 0; k < i; k++) {
        let dot = 0;
        for (let j = 0; j < d; j++) dot += q[i * d + j] * q[k * d + j];
        for (let j = 0; j < d; j++) q[i * d + j] -= dot * q[k * d + j];
      }
    }
    let size = 0;
    for (let j = 0; j < d; j++) size += q[i * d + j] ** 2;
    for (let j = 0; j < d; j++) q[i * d + j] /= Math.sqrt(size);
  }
  return transpose(q, d, d);
}

// Gauss–Jordan with row pivoting.
function inverse(v, d) {
  const [a, b] = [Float64Array.from(v), new Float64Array(d * d)];
  for (let i = 0; i < d; i++) b[i * d + i] = 1;
  for (let c = 0; c < d; c++) {
    let pivot = c;
    for (let r = c + 1; r < d; r++) if (Math.abs(a[r * d + c]) > Math.abs(a[pivot * d + c])) pivot = r;
    for (const m of [a, b]) for (let j = 0; j < d; j++) [m[c * d + j], m[pivot * d + j]] = [m[pivot * d + j], m[c * d + j]];
    const scale = 1 / a[c * d + c];
    for (const m of [a, b]) for (let j = 0; j < d; j++) m[c * d + j] *= scale;
    for (let r = 0; r < d; r++) {
      const factor = a[r * d + c];
      if (r === c || !factor) continue;
      for (const m of [a, b]) for (let j = 0; j < d; j++) m[r * d + j] -= factor * m[c * d + j];
    }
  }
  return b;
}

// The random layer of docs/theory.md, section 5: H = V Λ V⁻¹ with λ uniform in [low, high]; W = Hᵀ.
function randomLayer({ seed, n, d, low, high, temperature, form, sign }) {
  const source = randomSource(seed);
  const x = source.normals(n * d);
  const [query, key] = [source.normals(d * d, d ** -0.5), source.normals(d * d, d ** -0.5)];
  const weight = Float64Array.from({ length: d }, () => sign * source.uniform());
  const v = source.normals(d * d, Math.sqrt(2 / d));
  const lambda = Float64Array.from({ length: d }, () => low + (high - low) * source.uniform());
  const scores = multiply(multiply(x, query, n, d, d), transpose(multiply(x, key, n, d, d), n, d), n, d, n);
  const a = softmax(scores, n, temperature * Math.sqrt(d));
  const basis = form === "symmetric" ? orthogonal(v, d) : v;
  const back = form === "symmetric" ? transpose(basis, d, d) : inverse(v, d);
  const h = multiply(basis.map((value, i) => value * lambda[i % d]), back, d, d, d);
  return { x, a, w: transpose(h, d, d), weight, n, d };
}

function softmax(scores, n, scale) {
  const out = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    const row = scores.subarray(i * n, (i + 1) * n);
    const top = Math.max(...row);
    let sum = 0;
    for (let j = 0; j < n; j++) sum += out[i * n + j] = Math.exp((row[j] - top) / scale);
    for (let j = 0; j < n; j++) out[i * n + j] /= sum;
  }
  return out;
}
