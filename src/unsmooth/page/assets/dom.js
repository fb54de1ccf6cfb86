// Elements made from data. Strings only ever become text nodes, so no label can turn into markup.
const SVG = "http://www.w3.org/2000/svg";

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return parent;
}

function assign(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

const h = (tag, attributes, ...children) => append(assign(document.createElement(tag), attributes), children);
const s = (tag, attributes, ...children) => append(assign(document.createElementNS(SVG, tag), attributes), children);
const find = (selector, root = document) => root.querySelector(selector);

let serial = 0;
const fresh = (prefix) => `${prefix}-${++serial}`;

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const range = (count) => Array.from({ length: count }, (_, i) => i);
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
