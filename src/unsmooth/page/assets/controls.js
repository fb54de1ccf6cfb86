// The controls of the playground, made of native inputs, so that keyboards and screen readers know them.
function segmented(label, options, value, change) {
  const name = fresh("choice");
  return h("fieldset", { class: "segmented", "data-control": label },
    h("legend", {}, label),
    h("div", {}, options.map(([key, text, title]) => h("label", { title },
      h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }),
      h("span", {}, text)))));
}

// A slider with its value beside it.
function slider(label, { min, max, step = 1, value, show: text = String, ends }, change) {
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
  box.set = set;
  return box;
}
