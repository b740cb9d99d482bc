// The page: a view for each part of the data that is there, chosen by name or by its number's key.

const kViews = [
  ['summary', 'Summary', summary, D.profiles.length],
  ['bars', 'Eager / fused', bars, D.comparison],
  ['flame', 'Flame graph', flame, D.folded.length],
  ['timeline', 'Timeline', timeline, D.timelines.length],
  ['roofline', 'Roofline', roofline, D.profiles.some(timed)],
  ['step', 'Opened step', openStep, D.opened],
  ['worst', 'Read worst', worst, D.worst],
].filter(([, , , there]) => there);
let current = '';  // the name of the view

function show() {
  const [word, number] = location.hash.slice(1).split(',');
  const mode = S ? S.steps.findIndex(s => s.mode === word) : -1;
  if (mode >= 0) go(mode, number ? number - 1 : 0);
  current = (kViews.find(v => v[0] === (mode < 0 ? word : 'step')) || kViews[0])[0];
  for (const [id] of kViews) {
    for (const part of ['view-', 'nav-']) byId(part + id).classList.toggle('on', id === current);
  }
}
function draw([id, , make]) {
  byId('view-' + id).replaceChildren();
  make(byId('view-' + id));
}
function selfCheck() {
  const rows = sum(D.profiles.map(p => rowsOf(p).length));
  const length = list => list ? list.length : 0;
  const wanted = [
    ['rows', drawn.summary, rows],
    ['dots and rows left out', drawn.roofline, D.profiles.some(timed) ? rows : 0],
    ['slices', drawn.timeline, sum(D.timelines.map(t => t.slices.length))],
    ['rows compared', drawn.bars, D.comparison ? D.comparison.rows.length : 0],
    ['digits', drawn.worst, D.worst ? D.worst.items.length : 0],
    ['ops', S ? byId('view-step').querySelectorAll('g.op').length : 0, S ? step().ops.length : 0],
  ];
  const wrong = wanted.filter(([, got = 0, want]) => got !== want);
  return wrong.length
    ? 'failed: ' + wrong.map(([what, got, want]) => `${what} ${got} of ${want}`).join(', ')
    : 'ok: ' + wanted.filter(w => w[2]).map(([what, got]) => `${what} ${got}`).join(', ');
}
try {
  byId('title').textContent = document.title = D.title;
  byId('sub').textContent = D.command;
  for (const [i, view] of kViews.entries()) {
    const [id, name] = view;
    // Not the name in the address: the browser would scroll to it.
    byId('main').append(node('section', {id: 'view-' + id}));
    byId('nav').append(node('a', {href: '#' + id, id: 'nav-' + id, title: `key ${i + 1}`}, name));
    draw(view);
  }
  byId('nav').hidden = kViews.length < 2;
  // The pictures are drawn anew, as wide as there is room, and in the colours that are asked for.
  const drawAgain = () => kViews.filter(v => v[0] !== 'summary').forEach(draw);
  let wide = window.innerWidth;  // a phone that hides its address bar changes the height alone
  window.addEventListener('resize', () => {
    if (wide !== window.innerWidth) drawAgain();
    wide = window.innerWidth;
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAgain);
  window.addEventListener('hashchange', show);
  window.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const scrolls = event.target.matches && event.target.matches('.scroll');
    if (current === 'step' && !scrolls && stepKey(event.key)) event.preventDefault();
    else if (kViews[event.key - 1]) location.hash = kViews[event.key - 1][0];
  });
  show();
  document.body.dataset.selfcheck = selfCheck();
} catch (e) {
  document.body.dataset.selfcheck = 'failed: ' + e;
  throw e;
}
