const menus = ["metric", "tokens"].map((id) => document.getElementById(id));
const step = document.getElementById("step");
const show = () => {
  const [metric, tokens] = menus.map((menu) => menu.value);
  step.nextElementSibling.value = step.dataset.said.split("|")[Number(step.value)];
  for (const part of document.querySelectorAll("[data-metric]")) {
    const here = part.dataset.metric === metric && part.dataset.tokens === tokens;
    part.hidden = !here || (part.dataset.step !== undefined && part.dataset.step !== step.value);
  }
};
for (const input of [...menus, step]) input.addEventListener("input", show);
show();
