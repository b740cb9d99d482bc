// What all views draw with: elements, boxes and lines, numbers as text.

// ---- elements
const kSvg = ['svg', 'g', 'rect', 'line', 'circle', 'text', 'title', 'polyline', 'path'];
function node(tag, attributes, ...children) {
  const e = kSvg.includes(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag)
                               : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else e.setAttribute(key, value);
  }
  e.append(...children.flat().filter(c => c !== null && c !== undefined));
  return e;
}
const byId = id => document.getElementById(id);
const put = (id, ...children) => byId(id).replaceChildren(...children.flat().filter(c => c));
const D = JSON.parse(byId('data').textContent);
const drawn = {};  // what each view drew, for the self-check

// What a key or a click does.
const act = what => ({tabindex: 0, onclick: what, onkeydown: e => e.key === 'Enter' && what()});
// How wide a picture in a card may be.
function room() {
  const wide = byId('main').clientWidth || 1400;
  return Math.max(wide - (wide <= 600 ? 38 : 82), 240);
}
const picture = (width, height, ...children) =>
  node('svg', {width, height, viewBox: `0 0 ${width} ${height}`}, ...children);
const label = (x, y, text, attributes) => node('text', {x, y, ...attributes}, text);
const kSoft = {class: 'soft'}, kToTheRight = {'text-anchor': 'end'};
const kInTheMiddle = {'text-anchor': 'middle'};
const box = (x, y, width, height, fill, title) =>
  node('rect', {x, y, width, height, fill, rx: 2}, title ? node('title', {}, title) : null);
const line = (x1, y1, x2, y2, attributes) => node('line', {x1, y1, x2, y2, ...attributes});
const card = (title, small, ...children) =>
  node('div', {class: 'card'}, node('h2', {}, title, node('small', {}, small)), ...children);
const note = (...text) => node('p', {class: 'note'}, ...text);
const legend = (names, text) => node('div', {class: 'row legend note'},
  ...names.map(name => node('span', {}, node('i', {style: `background:var(--${name})`}), name)),
  node('span', {}, text));
const tableOf = (titles, rows) => node('div', {class: 'scroll', tabindex: 0}, node('table', {},
  ...[titles, ...rows].map((cells, r) =>
    node('tr', {}, ...cells.map(c => node(r ? 'td' : 'th', {}, c))))));
// A number of the data, and how it is shown.
const figure = (name, value, text) =>
  node('b', {'data-figure': name, 'data-value': value}, text === undefined ? String(value) : text);

// A kernel's name read aloud, as the program did, to stand under another text; or nothing.
const reading = kernel => D.names[kernel] ? `\n\n${kernel}\n${D.names[kernel].trim()}` : '';

// How wide a text of a picture is, in the font of this machine.
const pen = node('canvas').getContext('2d');
pen.font = '12px system-ui, sans-serif';
const widthOf = text => pen.measureText(text).width;

// A box of a flame graph or a timeline, with its name where there is room.
function nameColour(name) {
  let hash = 0;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) % 360;
  return `hsl(${(hash * 137) % 360} 48% 70%)`;
}
const kDark = {style: 'fill:#1c2430'};  // on bright boxes
const namedBox = (name, x, y, wide, fill) => [box(x, y, Math.max(wide - 1, .4), 20, fill),
  wide > 42 ? label(x + 5, y + 14,
    cut(name, Math.floor(name.length * (wide - 9) / widthOf(name))), kDark) : null];

// ---- numbers as text
const arrows = text => text.replaceAll('->', '\u2192');
const cut = (text, most) => text.length > most ? text.slice(0, Math.max(most - 2, 1)) + '..' : text;
function scaled(n, units) {  // [[1e9, 'GB', 2], ..]
  const [size, unit, digits] = units.find(([least]) => n >= least) || units[units.length - 1];
  return (n / size).toFixed(digits) + ' ' + unit;
}
const time = ns => scaled(ns, [[1e9, 's', 2], [1e6, 'ms', 2], [1e3, 'us', 1], [1, 'ns', 0]]);
const bytes = n => scaled(n, [[1e9, 'GB', 2], [1e6, 'MB', 2], [1e3, 'kB', 1], [1, 'B', 0]]);
const flops = n =>
  scaled(n, [[1e9, 'GFLOP', 2], [1e6, 'MFLOP', 2], [1e3, 'kFLOP', 1], [1, 'FLOP', 0]]);
const rate = (x, unit) => scaled(x, [[1e12, 'T' + unit, 1], [1e9, 'G' + unit, x >= 1e10 ? 0 : 1],
  [1e6, 'M' + unit, 1], [1e3, 'k' + unit, 1]]);
const count = (n, word) => `${n} ${word}${n === 1 ? '' : word.endsWith('h') ? 'es' : 's'}`;
const short = x => x === null ? '-' : String(+x.toPrecision(3));
const sum = a => a.reduce((x, y) => x + y, 0);
function median(values) {
  const sorted = [...values].sort((x, y) => x - y), half = sorted.length / 2;
  return (sorted[Math.ceil(half) - 1] + sorted[Math.floor(half)]) / 2;
}
// Math.max(...values) fails for as many values as a long run has steps.
const highest = values => values.reduce((a, b) => Math.max(a, b), -Infinity);
const lowest = values => values.reduce((a, b) => Math.min(a, b), Infinity);

// ---- pictures of values: 57 levels from '#', the middle is 0
const dark = () => matchMedia('(prefers-color-scheme: dark)').matches;
function colour(level) {
  const share = level / 28 - 1;
  const zero = dark() ? [29, 35, 43] : [250, 250, 250];
  const end = share < 0 ? [47, 111, 175] : [214, 110, 40];
  return zero.map((z, i) => z + (end[i] - z) * Math.sqrt(Math.abs(share)));
}
// pixel(i), of the i-th value, is [red, green, blue].
function canvasOf(tiles, rows, columns, wide, pixel) {
  const across = Math.ceil(Math.sqrt(tiles * rows / columns)) || 1, gap = tiles > 1 ? 1 : 0;
  const many = tiles > 1 ? Math.max(across, Math.min(tiles, 8)) : 1;
  const width = many * (columns + gap) - gap;
  const height = Math.ceil(tiles / many) * (rows + gap) - gap;
  const scale = Math.max(1, Math.min(8, Math.floor(wide / width)));
  const canvas = node('canvas', {width, height, role: 'img', 'aria-label': 'values',
    style: `width:${width * scale}px`});
  const context = canvas.getContext('2d'), image = context.createImageData(width, height);
  for (let i = 0; i < tiles * rows * columns; ++i) {
    const c = i % columns, r = Math.floor(i / columns) % rows, t = Math.floor(i / columns / rows);
    const x = t % many * (columns + gap) + c, y = Math.floor(t / many) * (rows + gap) + r;
    image.data.set([...pixel(i), 255], 4 * (y * width + x));
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
const heat = (p, wide) => !p.tiles ? null
  : canvasOf(p.tiles, p.rows, p.columns, wide, i => colour(p.pixels.charCodeAt(i) - 35));
