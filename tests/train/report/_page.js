"use strict";
// Runs the script of a report against as much of a browser as it needs, and prints what a reader would find:
// whether it came to its end, every text (also what a click shows), and what is said at the left and the right edge of every map and chart;
// where texts of charts stand, and what legends show dashed.
const fs = require("fs");

const html = fs.readFileSync(process.argv[2], "utf8");
const [, data] = html.match(/id="data">([\s\S]*?)<\/script>/);
const [, script] = html.match(/<script>\n([\s\S]*)<\/script>/);
const made = [];

class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, listeners: {}, style: {}, dataset: {}, clientWidth: 800 });
    this.classList = { add() {}, remove() {} };
    made.push(this);
  }
  set textContent(text) { this.children = [String(text)]; }
  get textContent() { return this.children.map((child) => (typeof child === "string" ? child : child.textContent)).join(""); }
  setAttribute(name, value) {
    if (/NaN|undefined|Infinity/.test(value)) throw new Error(`${this.tag} has ${name}="${value}"`);
    this.attributes[name] = String(value);
  }
  append(...children) { this.children.push(...children); }
  replaceChildren() { this.children = []; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  getBoundingClientRect() { return { left: 0, top: 0, width: 800, height: 300 }; }
  getContext() { return { createImageData: (width, height) => ({ data: new Uint8ClampedArray(4 * width * height) }), putImageData() {} }; }
}
class SVGElement extends Element {}

const named = { data: new Element("script"), page: new Element("div"), theme: new Element("button") };
named.data.textContent = data;
const tip = new Element("div"), root = new Element("html");
const browser = {
  SVGElement,
  document: {
    documentElement: root,
    getElementById: (id) => named[id],
    querySelector: () => tip,
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new SVGElement(tag),
  },
  getComputedStyle: () => ({ getPropertyValue: () => "#112233", paddingLeft: "0", paddingRight: "0" }),
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  innerWidth: 1000,
  innerHeight: 800,
};
new Function(...Object.keys(browser), script)(...Object.values(browser));
for (const button of made.filter((node) => node.tag === "button" && node !== named.theme)) button.listeners.click();

const said = (node, clientX) => {
  tip.textContent = "";
  node.listeners.pointermove({ clientX, clientY: 1 });
  return tip.textContent;
};
const edges = (tag) => made.filter((node) => node.tag === tag && node.listeners.pointermove).map((node) => [said(node, 0), said(node, 799.9)]);
console.log(JSON.stringify({
  ready: root.dataset.ready === "true",
  texts: made.filter((node) => node !== named.data && node.children.some((child) => typeof child === "string")).map((node) => node.textContent),
  maps: edges("canvas"),
  charts: edges("svg"),
  nodes: made.length,
  bars: made.filter((node) => node.attributes?.class === "bar").map((node) => node.attributes),
  circles: made.filter((node) => node.tag === "circle").length,
  places: made.filter((node) => node.tag === "text").map((node) => ({ ...node.attributes, text: node.textContent })),
  dashed: made.filter((node) => node.tag === "span" && node.children.some((child) => child.attributes?.class === "dashed")).map((node) => node.textContent),
}));
