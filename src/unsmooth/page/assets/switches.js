// Switches choose between drawings that are in the page already: they show and hide.
function stateOf(figure) {
  const state = {};
  for (const input of figure.querySelectorAll("[data-key]")) {
    if (input.type !== "radio" || input.checked) state[input.dataset.key] = input.value;
  }
  return state;
}

function update(figure) {
  hideTip();
  const state = stateOf(figure);
  for (const [key, value] of Object.entries(state)) figure.setAttribute(`data-now-${key}`, value);
  const fits = (pair) => {
    const [key, values] = pair.split("=");
    return !(key in state) || values.split("|").includes(state[key]);
  };
  for (const element of figure.querySelectorAll("[data-when]")) element.toggleAttribute("hidden", !element.dataset.when.split(" ").every(fits));
  for (const words of figure.querySelectorAll(".token-text")) recolour(words, state);
}

// Words stand in the page once; the layer and the scale choose the level of the colour behind each.
function recolour(words, { layer, scale }) {
  const levels = words.dataset[scale || "shared"].split(" ");
  const at = Math.min(Number(layer), levels.length - 1);
  const model = models[words.closest("[data-model]").dataset.model];
  [...words.children].forEach((word, i) => {
    word.className = `q${parseInt(levels[at][i], 16)}`;
    word.title = show(model.distance[at][i]);
  });
}

function slide(input, value) {
  input.value = value;
  const said = input.dataset.said.split("|")[Number(input.value)];
  input.setAttribute("aria-valuetext", said);
  find("output", input.parentNode).textContent = said;
}

function player(button) {
  const input = find("input", button.parentNode);
  const step = (value) => { slide(input, value); update(input.closest(".figure")); };
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; button.setAttribute("aria-pressed", "false"); };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (input.value === input.max) step(0);
    button.textContent = "Pause";
    button.setAttribute("aria-pressed", "true");
    timer = setInterval(() => (input.value === input.max ? stop() : step(Number(input.value) + 1)), 450);
  });
}

// A model that is switched off is hidden wherever it has a mark, a panel or a row of its own; one always stays.
function legend() {
  for (const input of document.querySelectorAll("[data-shows]")) {
    input.addEventListener("change", () => {
      const index = Number(input.dataset.shows);
      if (input.checked) hidden.delete(index);
      else if (hidden.size === models.length - 1) input.checked = true;
      else hidden.add(index);
      hideTip();
      for (const element of document.querySelectorAll("main [data-model]")) element.classList.toggle("off", hidden.has(Number(element.dataset.model)));
    });
  }
}

// A link of the findings may say what its figure is to show: {"tokens": …, "metric": …, "model": …}.
function choose(figure, wanted) {
  for (const [key, value] of Object.entries(wanted)) {
    for (const input of figure.querySelectorAll("[data-key]")) {
      if (input.dataset.key.replace(/-\d+$/, "") !== key) continue; // each panel has its own menu of metrics
      if (input.type === "radio") input.checked = input.checked || input.value === String(value); // unchecks the others
      else if (input.type === "range") slide(input, value);
      else {
        const option = [...input.options].find((each) => each.value === String(value) || each.textContent === String(value));
        if (option) input.value = option.value;
      }
    }
  }
  update(figure);
}

function switches() {
  for (const figure of document.querySelectorAll(".figure[data-figure]")) {
    figure.addEventListener("input", (event) => {
      if (!event.target.dataset.key) return;
      if (event.target.type === "range") slide(event.target, event.target.value);
      update(figure);
    });
    for (const button of figure.querySelectorAll(".slider[data-control] > .play")) player(button);
    if (find("[data-key]", figure)) update(figure);
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-view]");
    const figure = link && find(`${link.getAttribute("href")} .figure`);
    if (figure) choose(figure, JSON.parse(link.dataset.view));
  });
  legend();
  for (const met of ["pointerover", "focusin"]) document.addEventListener(met, meet);
}
