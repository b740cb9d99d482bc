// Walks through an opened step by its keys and switches each of its rules, and leaves in <body
// data-test> what is wrong with it: figures that are not the data's, ops that keys do not reach,
// text that is cut.
const wrong = [];
const expect = (what, is, want) => {
  if (String(is) !== String(want)) wrong.push(`${what} is ${is}, wanted ${want}`);
};
const found = name => document.querySelector(`[data-figure=${name}]`);
const shown = name => found(name).dataset.value;
const press = key => dispatchEvent(new KeyboardEvent('keydown', {key, cancelable: true}));
function fits(where) {
  const most = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > most) wrong.push(`${where} is wider than ${most}`);
  for (const e of document.querySelectorAll('p, h1, h2, h3, dd, small, button, canvas, svg, nav a')) {
    const box = e.getBoundingClientRect();
    if (!e.closest('.scroll') && box.right > most + 1) wrong.push(`${where}: ${e.tagName} is cut`);
  }
}
for (const [m, s] of S.steps.entries()) {
  if (at.mode !== m) press('f');
  press('Home');
  expect('launches', shown('launches'), s.launches);
  expect('bytes', shown('bytes'), s.bytes);
  expect('step flops', shown('step-flops'), s.flops);
  expect('arcs', shown('arcs'), s.arcs.length);
  expect('drawn arcs', document.querySelectorAll('.arc').length, s.arcs.length);
  expect('drawn ops', document.querySelectorAll('g.op').length, s.ops.length);
  expect('arena', shown('arena'), s.arena_bytes);
  expect('blocks', document.querySelectorAll('.block').length,
      s.buffers.filter(b => b.offset >= 0).length);
  for (const [i, o] of s.ops.entries()) {
    expect('number', shown('number'), i + 1);
    for (const name of ['formula', 'place', 'flops', 'read', 'written', 'live', 'freed'])
      expect(`${name} of ${i + 1}`, shown(name), o[name]);
    expect(`ns of ${i + 1}`, found('ns') ? shown('ns') : null, o.ns);
    const values = document.querySelectorAll('.columns .value').length;
    expect(`values of ${i + 1}`, values, o.in.length + o.out.length);
    fits(`${s.mode} ${i + 1}`);
    press('ArrowRight');
  }
  expect('the last op', shown('number'), s.ops.length);
}
const buttons = () => [...document.querySelectorAll('#switches button')];
const all = S.switches.counts.length - 1;
for (const [i, name] of S.switches.names.entries()) {
  expect('a switch', buttons()[i].textContent, name);
  buttons()[i].click();
  for (const [k, what] of ['launches', 'bytes', 'arena'].entries())
    expect(`${what} without ${name}`, shown(`switched-${what}`), S.switches.counts[all ^ 1 << i][k]);
  fits(`without ${name}`);
  buttons()[i].click();
}
expect('launches with all', shown('switched-launches'), S.steps[1].launches);
document.body.dataset.test = wrong.length ? wrong.slice(0, 5).join('; ') : 'as the data say';
