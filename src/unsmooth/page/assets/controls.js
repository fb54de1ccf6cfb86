// Controls made of native inputs, so that keyboards and screen readers know them.
function segmented(label, options, value, change) {
  const name = fresh("choice");
  if (options.length < 2) return null;
  return h("fieldset", { class: "segmented", "data-control": label },
    h("legend", {}, label),
    h("div", {}, options.map(([key, text, title]) => h("label", { title },
      h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }),
      h("span", {}, text)))));
}

function select(label, options, value, change) {
  const id = fresh("select");
  if (options.length < 2) return null;
  const box = h("select", { id, onchange: () => change(box.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  return h("div", { class: "field", "data-control": label }, h("label", { for: id }, label), box);
}

// A slider with its value beside it; `play` adds a button that walks through all values.
function slider(label, { min, max, step = 1, value, show: text = String, play = false, ends }, change) {
  const id = fresh("slider");
  const output = h("output", { for: id }, text(value));
  const input = h("input", { id, type: "range", min, max, step, value, "aria-valuetext": text(value) });
  const set = (next) => {
    input.value = next;
    output.textContent = text(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
    change(Number(input.value));
  };
  input.addEventListener("input", () => set(input.value));
  const box = h("div", { class: "field slider", "data-control": label },
    h("label", { for: id }, label), ends ? h("small", {}, ends[0]) : null, input, ends ? h("small", {}, ends[1]) : null, output);
  if (play) box.append(player(() => Number(input.value), (next) => set(next), min, max));
  box.set = set;
  return box;
}

function player(get, set, min, max) {
  let timer = 0;
  const button = h("button", { type: "button", class: "play", "aria-pressed": "false" }, "Play");
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Play"; button.setAttribute("aria-pressed", "false"); };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (get() >= max) set(min);
    button.textContent = "Pause";
    button.setAttribute("aria-pressed", "true");
    timer = setInterval(() => (get() >= max ? stop() : set(get() + 1)), 450);
  });
  return button;
}

function toggle(label, value, change) {
  const input = h("input", { type: "checkbox", checked: value, onchange: () => change(input.checked) });
  return h("label", { class: "toggle", "data-control": label }, input, h("span", {}, label));
}

const toolbar = (...controls) => h("div", { class: "toolbar" }, controls);
