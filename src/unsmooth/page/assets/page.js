// Downloads, theme, and the sections in their order.
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function downloads() {
  for (const button of document.querySelectorAll("[data-download]")) {
    button.addEventListener("click", async () => {
      const name = button.dataset.download;
      download(`unsmooth-${name}`, name.endsWith("csv") ? "text/csv" : "application/json", await unpack(find(`#file-${name.replace(".", "-")}`).textContent));
    });
  }
}

// Follows the system until somebody chooses.
function theme() {
  const button = find("#theme");
  const dark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; say(); });
  say();
}

// A link in a sentence sets the switches of its figure to what the sentence speaks of.
const SWITCHES = { tokens: ["Tokens"], metric: ["Metric", "Definition"], reading: ["Reading"], model: ["Model"], folding: ["Folding"], of: ["Eigenvalues of"], count: ["Which H"] };

function choose(section, label, value) {
  for (const control of section.querySelectorAll(`[data-control="${label}"]`)) {
    const item = [...control.querySelectorAll("input, option")].find((each) => each.value === value);
    const box = find("select", control);
    if (!item || (box ? box.value === value : item.checked)) continue;
    if (!box) item.click();
    else { box.value = value; box.dispatchEvent(new Event("change")); }
  }
}

function follow(event) {
  const link = event.target.closest("a[data-view]");
  if (!link) return;
  for (const [name, value] of Object.entries(JSON.parse(link.dataset.view))) {
    for (const label of SWITCHES[name] || []) choose(find(link.getAttribute("href")), label, value);
  }
}

const SECTIONS = {
  depth: depthSection, steps: stepsSection, spectra: spectraSection, histograms: histogramSection, shares: sharesSection,
  exponents: exponentsSection, heads: headsSection, tokens: tokensSection, playground: playgroundSection,
};

function start() {
  document.body.append(tip);
  const bar = find("#legend");
  const key = legend();
  if (key) bar.append(key);
  downloads();
  theme();
  document.addEventListener("click", follow);
  window.addEventListener("scroll", hideTip, { passive: true });
  mountNext(Object.entries(SECTIONS));
}

// One section per task: the text and the first figure are there at once, and the page never freezes.
function mountNext([first, ...rest]) {
  const root = find(`#${first[0]} .live`);
  if (root) first[1](root);
  if (rest.length) setTimeout(() => mountNext(rest));
  else document.documentElement.dataset.ready = "yes";
}

window.unsmooth = { simulate, randomLayer, data };
start();
