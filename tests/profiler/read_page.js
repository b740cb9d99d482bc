// Runs the scripts of an HTML report in a DOM that only remembers what was put into it, and prints
// the page's self-check: node read_page.js REPORT.html; or with `rows` behind it the rows of its
// tables, a line of titles first, as a JSON array of arrays of text.
'use strict';
const html = require('fs').readFileSync(process.argv[2], 'utf8');

const byName = new Map();  // elements that have an id
class Element {
  constructor(tag) {
    this.tag = tag;
    this.children = [];
    this.attributes = {};
    this.dataset = {};
  }
  get classList() {
    return {toggle() {}, add() {}, remove() {}};
  }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  setAttribute(name, value) {
    this.attributes[name] = value;
    if (name === 'id') byName.set(value, this);
  }
  addEventListener() {}
  getContext() {
    return {measureText: text => ({width: 7 * text.length})};
  }
  all(found = []) {
    for (const child of this.children.filter(c => c instanceof Element)) {
      found.push(child);
      child.all(found);
    }
    return found;
  }
  querySelectorAll(selector) {
    const [tag, name] = selector.split('.');
    return this.all().filter(
        e => e.tag === tag && (!name || (e.attributes.class || '').split(' ').includes(name)));
  }
}

const body = new Element('body');
const make = tag => new Element(tag);
function byId(id) {
  if (id === 'data') return {textContent: html.match(/id="data">([\s\S]*?)<\/script>/)[1]};
  if (byName.has(id)) return byName.get(id);
  const added = make('div');
  added.setAttribute('id', id);
  body.append(added);
  return added;
}
global.document = {
  body,
  createElement: make,
  createElementNS: (space, tag) => make(tag),
  getElementById: byId
};
global.window = {
  addEventListener() {},
  matchMedia: () => global.window
};
global.location = {
  hash: ''
};
eval([...html.matchAll(/<script>\n([\s\S]*?)<\/script>/g)].map(found => found[1]).join(''));
const text = e => e instanceof Element ? e.children.map(text).join('') : String(e);
const rows = body.all().filter(e => e.tag === 'tr').map(e => e.children.map(text));
console.log(process.argv[3] === 'rows' ? JSON.stringify(rows) : body.dataset.selfcheck);
