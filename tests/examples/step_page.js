// Walks through a page of `mnist inspect` by its keys, and leaves in <body data-test> what is wrong
// with it: figures that are not the data's, ops that keys do not reach, text that is cut.
const wrong = [];
const expect = (what, is, want) => {
  if (String(is) !== String(want)) wrong.push(`${what} is ${is}, wanted ${want}`);
};
const shown = name => document.querySelector(`[data-figure=${name}]`).dataset.value;
const press = key => dispatchEvent(new KeyboardEvent('keydown', {key, cancelable: true}));
function fits(where) {
  const most = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > most) wrong.push(`${where} is wider than ${most}`);
  for (const e of document.querySelectorAll('p, h1, h2, h3, dd, small, button, canvas, svg')) {
    const box = e.getBoundingClientRect();
    if (!e.closest('.scroll') && box.right > most + 1) wrong.push(`${where}: ${e.tagName} is cut`);
  }
}
for (const [m, s] of D.steps.entries()) {
  if (at.mode !== m) press('f');
  press('Home');
  expect('launches', shown('launches'), s.launches);
  expect('bytes', shown('bytes'), s.bytes);
  expect('step flops', shown('step-flops'), s.flops);
  expect('arcs', shown('arcs'), s.arcs.length);
  expect('drawn arcs', document.querySelectorAll('.arc').length, s.arcs.length);
  expect('drawn ops', document.querySelectorAll('.op').length, s.ops.length);
  expect('arena', shown('arena'), s.arena_bytes);
  expect('blocks', document.querySelectorAll('.block').length,
      s.buffers.filter(b => b.offset >= 0).length);
  for (const [i, o] of s.ops.entries()) {
    expect('number', shown('number'), i + 1);
    for (const name of ['formula', 'place', 'flops', 'read', 'written', 'live', 'freed', 'ns'])
      expect(`${name} of ${i + 1}`, shown(name), o[name]);
    const values = document.querySelectorAll('.columns .value').length;
    expect(`values of ${i + 1}`, values, o.in.length + o.out.length);
    fits(`${s.mode} ${i + 1}`);
    press('ArrowRight');
  }
  expect('the last op', shown('number'), s.ops.length);
}
document.body.dataset.test = wrong.length ? wrong.slice(0, 5).join('; ') : 'as the data say';
