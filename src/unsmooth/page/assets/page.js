// Downloads, theme, what is packed, and the start of everything.
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

// What no switch shows at first lies packed in its figure: drawings of one kind are alike, and pack well.
async function unfold(store) {
  const figure = store.closest(".figure");
  const parts = JSON.parse(await unpack(store.textContent));
  figure.querySelectorAll("[data-packed]").forEach((element, i) => { element.innerHTML = parts[i]; });
  update(figure);
}

function start() {
  document.body.append(tip);
  downloads();
  theme();
  switches();
  window.addEventListener("scroll", hideTip, { passive: true });
  // In a task of its own: the text and the figures are there at once.
  setTimeout(async () => {
    playgroundSection(find("#playground .figure"));
    await Promise.all([...document.querySelectorAll("script.parts")].map(unfold));
    document.documentElement.dataset.ready = "yes";
  });
}

window.unsmooth = { simulate, randomLayer, data };
start();
