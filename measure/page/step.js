// The opened step (sinter.inspect/1): the ops of a training step in the order in which they run,
// eager and fused, with their values, memory and arcs; and switches of its rules. #fused,7 opens
// the page at the seventh op of the fused step.

const S = D.opened;
const at = {mode: 0, op: 0};
const step = () => S.steps[at.mode], op = () => step().ops[at.op];
const machine = () => `${S.device}, ${count(S.threads, 'thread')}`;

// ---- pictures of values
function histogram(p) {
  const most = Math.max(1, ...p.counts), chart = node('svg', {width: 130, height: 32});
  p.counts.forEach((n, i) => chart.append(node('rect', {x: 8 * i, y: 32 - 31 * n / most, width: 7,
    height: 31 * n / most, fill: 'var(--soft)'})));
  return chart;
}
function place(operand) {
  const b = step().buffers[operand.buffer];
  if (b.kind === 'input') return 'input of the step';
  if (b.kind === 'kept') return 'lives across steps';
  if (b.kind === 'constant') return 'a constant';
  return `arena ${b.offset + operand.begin} .. ${b.offset + operand.end}`;
}
function valueCard(operand) {
  const p = step().pictures[operand.picture];
  const pixels = p.pixels.length, all = sum(p.counts);
  const facts = `${short(p.low)} .. ${short(p.high)}, mean ${short(p.mean)}, ` +
    `deviation ${short(p.deviation)}` + (p.zeros ? `, ${(100 * p.zeros).toFixed(0)} % zeros` : '') +
    (pixels < all ? `; ${pixels} of ${all} drawn` : '');
  return node('div', {class: 'value'}, node('h3', {}, operand.name), node('small', {},
    `${operand.type}, `, figure('place', operand.buffer, place(operand))), heat(p, 270),
    node('small', {}, facts), histogram(p));
}

// ---- the tape
const kParts = ['forward', 'loss', 'backward', 'update'];
const parts = o => (o.part || 'forward').split(' + ');
const title = o => /grad/.test(o.role) ? `${o.op}(${o.role})` : o.op;
function tape() {
  const kArcs = 130, kBox = 30, n = step().ops.length, slot = room() / n, named = slot > 12;
  const longestName = highest(step().ops.map(o => cut(title(o), 28).length));
  const height = kArcs + kBox + (named ? 10 + 6.6 * longestName : 4);
  const line = node('svg', {width: room(), height, role: 'list'});
  const longest = Math.max(1, ...step().arcs.map(a => a.to - a.from));
  const middle = i => (i + .5) * slot;
  for (const arc of step().arcs) {
    const on = arc.from === at.op || arc.to === at.op, from = middle(arc.from), to = middle(arc.to);
    const top = kArcs - 1.3 * (kArcs - 8) * ((arc.to - arc.from) / longest) ** .6;
    line.append(node('path', {class: 'arc' + (on ? ' on' : ''),
      d: `M${from} ${kArcs} C${from} ${top} ${to} ${top} ${to} ${kArcs}`},
    node('title', {}, `${bytes(arc.bytes)} held from ${arc.from + 1} to ${arc.to + 1}`)));
  }
  step().ops.forEach((o, i) => {
    const wide = Math.max(slot - 3, 2), x = i * slot + 1.5, band = kBox / parts(o).length;
    const many = o.origin.length > 1 && slot > 12 ? String(o.origin.length) : '';
    line.append(node('g', {class: 'op' + (i === at.op ? ' on' : ''), role: 'listitem',
      onclick: () => go(at.mode, i)},
    node('title', {}, `${i + 1} ${title(o)}`),
    parts(o).map((p, k) => box(x, kArcs + k * band, wide, band, `var(--${p})`)),
    label(middle(i), kArcs + 20, many, {class: 'count', ...kInTheMiddle}),
    named ? node('text', {class: 'tick',
      transform: `translate(${middle(i) - 4} ${kArcs + kBox + 6}) rotate(90)`},
    cut(title(o), 28)) : null));
  });
  put('tape', line);
}

// ---- the op
function opCard() {
  const o = op(), steps = S.steps, held = step().arcs.filter(a => a.from === at.op);
  const read = step().arcs.filter(a => a.to === at.op);
  const name = i => `${i + 1} ${title(step().ops[i])}`;
  const fact = (label, ...content) => [node('dt', {}, label), node('dd', {}, ...content)];
  const kernels = o.kernels.length ? o.kernels.map(k => node('p', {}, figure('kernel', k.name),
    `, grid ${k.grid.join(' x ')}, block ${k.block}, shared ${bytes(k.shared)}`))
    : 'one call on ' + machine();
  const eager = steps[0].ops, lines = (list, text) => list.map(x => node('p', {}, text(x)));
  put('op',
    node('h2', {}, figure('number', at.op + 1), ` of ${step().ops.length}: `,
      figure('op', title(o)), node('small', {}, '  ' + o.part)),
    node('div', {class: 'formula'}, figure('formula', o.formula)),
    node('div', {class: 'columns'},
      node('dl', {},
        fact('source', figure('place', o.place)),
        o.module ? fact('module', lines(o.module.split(' + '), m => m)) : [],
        !o.rule ? [] : fact('folds',
          lines(o.origin, i => `${i + 1} ${title(eager[i])}: ${eager[i].formula}`)),
        o.attrs ? fact('attributes', o.attrs) : [],
        fact('kernel', kernels)),
      node('dl', {},
        o.ns === null ? [] : fact('time', figure('ns', o.ns, time(o.ns))),
        fact('work', figure('flops', o.flops, flops(o.flops))),
        fact('reads', figure('read', o.read, bytes(o.read))),
        fact('writes', figure('written', o.written, bytes(o.written))),
        fact('arena', figure('live', o.live, bytes(o.live)), ' in use, ',
          figure('freed', o.freed, bytes(o.freed)), ' free after it'),
        !held.length ? [] : fact('keeps',
          lines(held, a => `${bytes(a.bytes)} until ${name(a.to)}`)),
        !read.length ? [] : fact('reads back',
          lines(read, a => `${bytes(a.bytes)} that ${name(a.from)} kept`)))),
    node('div', {class: 'columns'}, ['in', 'out'].map(side => node('div', {},
      node('h2', {}, side), node('div', {class: 'values'}, o[side].map(valueCard))))));
}

// ---- memory
function memory() {
  const s = step(), n = s.ops.length, slot = room() / n, kHigh = 220;
  const y = address => kHigh * address / Math.max(s.arena_bytes, 1);
  const map = node('svg', {width: room(), height: kHigh + 2});
  const used = new Set([...op().in, ...op().out].map(v => v.buffer));
  s.buffers.forEach((b, i) => {
    if (b.offset < 0) return;
    map.append(node('rect', {class: 'block' + (used.has(i) ? ' on' : ''), x: b.first * slot + 1,
      y: y(b.offset) + .5, width: Math.max((Math.min(b.last, n - 1) - b.first + 1) * slot - 2, 1),
      height: Math.max(y(b.bytes) - 1, .7)}, node('title', {},
      `${bytes(b.bytes)} at ${b.offset}, ops ${b.first + 1} to ${Math.min(b.last, n - 1) + 1}` +
      (b.last === n ? ', kept for the caller' : ''))));
  });
  const now = (at.op + .5) * slot;
  map.append(line(now, 0, now, kHigh, {stroke: 'var(--mark)'}));
  const loss = s.ops.findLastIndex(o => parts(o).includes('loss'));
  const size = (name, n) => figure(name, n, bytes(n));
  put('memory', map, note(
    'down: one arena of ', size('arena', s.arena_bytes), '; across: the ops; ',
    size('unshared', s.unshared_bytes),
    ' if every buffer had its own. ', at.mode > 0 ? ''
      : 'Eager steps ask the allocator for each; this is how a replay lays them out. ',
    loss < 0 ? '' : `When the loss is known (op ${loss + 1}), ` +
      `${bytes(s.ops[loss].live - s.ops[loss].freed)} are still needed.`));
}

// ---- switches: what the step would count without some of its rules
let switched = S && S.switches ? S.switches.counts.length - 1 : 0;  // bit i: is rule i on
function switches() {
  const {names, set, counts} = S.switches, isOn = i => Boolean(switched >> i & 1);
  const off = names.filter((_, i) => !isOn(i)), all = counts.at(-1), now = counts[switched];
  const change = (i, text) => now[i] === all[i] ? ''
    : ` (${now[i] > all[i] ? '+' : '-'}${text(Math.abs(now[i] - all[i]))})`;
  const shown = (i, what, text, words) => node('span', {},
    figure('switched-' + what, now[i], text(now[i])), words + change(i, text));
  put('switches', node('h2', {}, 'Fusion rules of this step'),
    node('div', {class: 'row'}, ...names.map((name, i) => node('button', {
      'aria-pressed': isOn(i), onclick: () => {
        switched ^= 1 << i;
        switches();
        byId('switches').querySelectorAll('button')[i].focus();
      }}, name))),
    node('p', {class: 'row'}, shown(0, 'launches', String, ' launches'),
      shown(1, 'bytes', bytes, ' moved'), shown(2, 'arena', bytes, ' of arena')),
    note(off.length
      ? `as --rules=${[set, ...off.map(n => '-' + n)].join(',')} counts`
      : 'A click switches a rule off, and the step is counted as the other rules fuse it then. ' +
        'The ops that are drawn stay those of all rules.'));
}

// ---- the rest
const misses = () => card('Nearly fused', '', ...S.misses.map(m => node('div', {},
  node('p', {}, node('b', {}, m.rule), `: ${m.what}`), note(m.why +
    (m.remedy ? `. To fuse: ${m.remedy}` : '') + `. It would save ${count(m.saves, 'launch')}.`))));

function model() {
  const first = S.parameters.find(p => p.before), shown = [];
  const {ops, buffers, pictures} = S.steps[0];
  const image = ops.flatMap(o => o.in).find(v => buffers[v.buffer].kind === 'input');
  const values = (name, p, text) => node('div', {class: 'value'}, node('h3', {}, name),
    node('small', {}, text), heat(p, 420));
  if (image) shown.push(values('what goes in', pictures[image.picture], image.type));
  if (first) shown.push(values(first.name, first.before, 'before the update'),
    values('its change', first.change, `at most ${short(first.most)}`));
  const logits = S.logits === null ? null : pictures[S.logits];
  if (logits && logits.values.length) {
    const rows = [], fixed = x => x.toFixed(2).replace('-0.00', '0.00');
    for (let i = 0; i < logits.values.length; i += logits.columns)
      rows.push(logits.values.slice(i, i + logits.columns));
    const label = r => S.labels[r] === undefined ? '' : `label ${S.labels[r]}`;
    shown.push(node('div', {class: 'value scroll', tabindex: 0}, node('h3', {}, 'logits'),
      node('table', {}, rows.map((row, r) => node('tr', {}, node('th', {}, label(r)),
        row.map(x => node('td', {class: x === Math.max(...row) ? 'best' : ''}, fixed(x))))))));
  }
  put('model', node('h2', {}, S.parameters.length ? 'The model, and what the update changed'
    : 'What goes in'),
    node('div', {class: 'values'}, ...shown),
    !S.parameters.length ? null : tableOf(['parameter', 'shape', 'length', 'moved by', 'most'],
      S.parameters.map(p => [p.name, p.shape, short(p.norm), short(p.moved), short(p.most)])));
}

function counters() {
  const button = (s, i) =>
    node('button', {'aria-pressed': i === at.mode, onclick: () => go(i)}, s.mode);
  const s = step();
  put('modes', S.steps.map(button),
    node('span', {}, figure('launches', s.launches), ' launches'),
    node('span', {}, figure('bytes', s.bytes, bytes(s.bytes)), ' moved'),
    node('span', {}, figure('step-flops', s.flops, flops(s.flops))),
    node('span', {}, figure('arcs', s.arcs.length),
      ` of ${S.steps[0].arcs.length} arcs: values held for backward`));
}

function drawStep() {
  counters();
  tape();
  opCard();
  memory();
}

// The other mode shows the op that holds the one that is shown.
function go(mode, number) {
  if (mode !== at.mode && number === undefined) {
    const wanted = op().origin[0];
    number = Math.max(0, S.steps[mode].ops.findIndex(o => o.origin.includes(wanted)));
  }
  at.mode = mode;
  at.op = Math.min(Math.max(number, 0), step().ops.length - 1);
  drawStep();
  history.replaceState(null, '', `#${step().mode},${at.op + 1}`);
}

// True if the key was one of this view.
function stepKey(key) {
  const last = step().ops.length - 1;
  const to = {ArrowRight: at.op + 1, ArrowLeft: at.op - 1, Home: 0, End: last}[key];
  if (to === undefined && key !== 'f') return false;
  if (key === 'f') go(1 - at.mode);
  else go(at.mode, to);
  return true;
}

function openStep(view) {
  const kbd = key => node('kbd', {}, key), space = ' \u00a0 ';
  const kept = (id, attributes) => node('div', {class: 'card', id, ...attributes});
  view.append(node('div', {class: 'row', id: 'modes'}),
    note(kbd('\u2190'), ' ', kbd('\u2192'), ' step' + space, kbd('Home'), ' ', kbd('End'),
      ' first, last' + space, kbd('f'), ' eager or fused'),
    node('div', {class: 'card'}, legend(kParts, ''), node('div', {id: 'tape'})),
    kept('op', {'aria-live': 'polite'}), ...(S.switches ? [kept('switches')] : []),
    card('Memory: address against time', '', node('div', {id: 'memory'})),
    ...(S.misses.length ? [misses()] : []), kept('model'));
  if (S.switches) switches();
  drawStep();
  model();
}
