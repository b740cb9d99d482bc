// The summary of each profile and its rows. Times are of the typical step, as in the table and in
// the JSON: a stall decides nothing. A time that was not measured is not shown.

const onDevice = p => p.rows.some(r => r.device_ns !== null);
const timed = p => !p.device.startsWith('simt');
const rowsOf = p => p.rows.filter(r => r.in_table);  // those of the table: no scopes
const steps = p => Math.max(p.steps.length, 1);
const moved = r => r.bytes_read + r.bytes_written;
const least = (n, unproved) => (unproved ? '>= ' : '') + n;  // a library's call may hide kernels

const kMeaning = {
  'Name': 'the op; (wgrad), (dgrad), (bgrad): gradient of weight, input, bias',
  'Self%': 'share of all self time',
  'Self us': 'time of its own, without what it calls; the median step',
  'Total us': 'time with what it calls; the median step',
  'p95': '95 of 100 steps take less self time',
  'Disp': 'the part of self time outside the kernel: checks, shapes, memory',
  'Calls': 'a step', 'Launch': 'kernels it starts, a step', 'MFLOP': 'arithmetic by its definition',
  'kB': 'each operand read or written once', 'FLOP/B': 'arithmetic for each byte',
  '%roof': 'share that it reaches of what this machine can do, by arithmetic or by bytes',
  'Pred us': 'what it should take: launches, and the slower of arithmetic and bytes',
  'xpred': 'self time against that', 'Verdict': 'what it is bound by',
  'Grid': 'blocks of its longest kernel', 'Block': 'threads of one',
  'Regs': 'registers of a thread, if anybody told',
  'Shared': 'bytes of shared memory of a block, static + dynamic',
  'Occ%': 'share of the warps that a multiprocessor has room for and this footprint lets in',
  'Limit': 'what lets no more in', 'Waves': 'times that the card is filled to run all blocks',
  'Tail%': 'how full it is the last time',
  'Flags': 'HOT: 40 % and more; MANY: calls, and the rule that joins them; ' +
    'DRILL: look at that child; SURPRISE: over 3 times what was predicted',
};
const meanings = () => node('details', {},
  node('summary', {class: 'note'}, 'What the columns mean'),
  node('dl', {class: 'terms'}, ...Object.entries(kMeaning).flatMap(([name, text]) =>
    [node('dt', {}, name), node('dd', {}, text)])));

// Title, value of a row (null or NaN: not known), its text if it is no text. Without the columns
// that no row knows.
function columnsOf(p) {
  const n = steps(p), some = (there, value) => there ? value : null;
  const fixed = digits => value => rounded(value, digits), count = value => +value.toFixed(2);
  const us = ns => some(timed(p), ns / n / 1e3);
  // Of the row's longest kernel.
  const of = (part, value) => r => r.kernels[0]?.[part] ? value(r.kernels[0][part]) : null;
  const shape = list => list.filter((x, i) => i === 0 || list.slice(i).some(y => y > 1)).join('x');
  const columns = [
    ['Name', r => r.name + (r.shapes ? '  ' + r.shapes : '')],
    ['Self%', r => some(r.share !== null, 100 * r.share), fixed(1)],
    ['Self us', r => us(r.typical_ns), fixed(1)],
    ['Total us', r => us(r.typical_total_ns), fixed(1)],
    ['p95', r => us(n * quantile(r.samples, .95)), fixed(1)],
    ['Disp', r => some(r.launches && !onDevice(p), us(r.typical_ns - r.typical_kernel_ns)),
      fixed(1)],
    ['Calls', r => r.calls / n, count],
    ['Launch', r => some(r.launches, r.launches / n), (v, r) => least(count(v), r.unproved)],
    ['MFLOP', r => some(r.flops || moved(r), r.flops / n / 1e6), fixed(2)],
    ['kB', r => some(r.flops || moved(r), moved(r) / n / 1e3), fixed(1)],
    ['FLOP/B', r => some(moved(r), r.flops / moved(r)), fixed(2)],
    ['%roof', r => some(r.roof !== null, 100 * r.roof), fixed(0)],
    ['Pred us', r => some(r.pred_ns !== null, r.pred_ns / n / 1e3), fixed(1)],
    ['xpred', r => some(r.roof !== null && r.pred_ns, r.typical_ns / r.pred_ns),
      v => v.toFixed(1) + 'x'],
    ['Verdict', r => r.verdict || null],
    ['Flags', r => r.flags || null],
    ['Grid', of('footprint', f => shape(f.grid))],
    ['Block', of('footprint', f => shape(f.block))],
    ['Regs', of('footprint', f => f.registers), String],
    ['Shared', of('footprint', f => `${f.static_shared ?? '?'}+${f.dynamic_shared ?? '?'}`)],
    ['Occ%', of('occupancy', o => 100 * o.share), fixed(1)],
    ['Limit', of('occupancy', o => o.limit)],
    ['Waves', of('occupancy', o => o.waves), fixed(2)],
    ['Tail%', of('occupancy', o => 100 * o.tail), fixed(0)],
  ];
  return columns.filter(([, value]) => rowsOf(p).some(r => isKnown(value(r))));
}
const isKnown = value => value !== null && !Number.isNaN(value);

function rowTable(p) {
  const columns = columnsOf(p), table = node('table', {class: 'sorted'});
  let by = Math.max(columns.findIndex(c => c[0] === 'Self us'), 0), down = by > 0;
  const title = ([name, , text], i) => node('th', {
    class: (text ? '' : 't') + (i === by ? ' by' : ''),
    title: kMeaning[name], 'aria-sort': i !== by ? 'none' : down ? 'descending' : 'ascending',
    ...act(() => sort(i)),
  }, name + (i === by ? (down ? ' \u25be' : ' \u25b4') : ''));
  function sort(i) {
    down = i === by ? !down : true;
    by = i;
    fill();
    table.querySelectorAll('th')[i].focus();
  }
  // Names of rules may be broken where a word ends.
  const breakable = text => text.split(/(?<=_)/).flatMap(part => [part, node('wbr')]);
  // The share is drawn behind its number.
  const meter = share => `background:linear-gradient(to right, color-mix(in srgb, var(--blue) ` +
    `35%, transparent) ${share.toFixed(1)}%, transparent 0)`;
  const cell = (r, [name, value, text]) => {
    const v = value(r), known = isKnown(v), shown = !known ? '-' : String(text ? text(v, r) : v);
    const kernels = name === 'Name' ? r.kernels.map(k =>
      `${count(k.launches / steps(p), 'launch')} a step of ${k.name}${reading(k.name)}`)
      .join('\n\n') : '';
    return node('td', {class: text ? '' : 't', style: name === 'Self%' && known ? meter(v) : '',
      title: kernels},
      ...(name === 'Flags' ? breakable(shown) : [shown]));
  };
  function fill() {
    const value = columns[by][1], order = down ? 1 : -1;
    const rows = rowsOf(p).sort((a, b) => order * (value(a) < value(b) ? 1 : -1));
    table.replaceChildren(node('tr', {}, ...columns.map(title)),
      ...rows.map(r => node('tr', {class: 'op'}, ...columns.map(c => cell(r, c)))));
  }
  fill();
  return node('div', {class: 'scroll', tabindex: 0}, table);
}

// Columns that find no room beside the others.
function memoryTable(p) {
  const kB = (bytes, n = steps(p)) => rounded(bytes / n / 1e3, 1);
  return node('details', {}, node('summary', {class: 'note'}, 'Memory of each row'),
    tableOf(['Name', 'Alloc kB', 'Freed kB', 'Peak kB', 'Kept kB'],
      rowsOf(p).map(({name, memory}) =>
        [name, kB(memory.allocated), kB(memory.freed), kB(memory.peak, 1), kB(memory.kept)])),
    note('what it takes and gives back in a step, the most in use while it ran, and what it took ' +
      'that is held when backward begins; of a replay, in the arena by its plan'));
}

function stepStrip(p) {
  if (!timed(p)) return [];
  const times = p.steps.map(s => s.ns), top = highest(times), usual = median(times);
  const strip = node('svg', {class: 'strip', height: 50, viewBox: `0 0 ${times.length} 50`,
    preserveAspectRatio: 'none', style: `width:min(100%, ${16 * times.length}px)`});
  times.forEach((t, i) => strip.append(box(i + .1, 50 - 50 * t / top, .8, 50 * t / top,
    t > 2 * usual ? 'var(--bad)' : 'var(--soft)',
    `step ${p.steps[i].number}, round ${p.steps[i].round}: ${time(t)}`)));
  return [strip, note(`each step's time: median ${time(usual)}, longest ${time(top)}`)];
}

function banner(there, title, text, bad) {
  if (!there) return null;
  return node('div', {class: 'verdict' + (bad ? ' bad' : '')}, node('b', {}, title), ' - ' + text);
}

function facts(p) {
  const launches = p.steps.map(s => s.launches), roofs = p.roofs;
  const low = lowest(launches), high = highest(launches);
  const known = [
    ['device', p.device], ['threads', p.threads], ['dtype', p.dtype], ['batch', p.batch],
    ['rules', p.mode === 'fused' ? p.rules : ''], ['seed', p.seed],
    ['active steps', p.steps.length],
    ['profiled step', timed(p) ? time(median(p.steps.map(s => s.ns))) : ''],
    ['clean step', p.clean_us.length ? time(median(p.clean_us) * 1e3) : ''],
    ['profiler', timed(p) ? time(median(p.steps.map(s => s.profiler_ns))) + ' of a step' : ''],
    ['launches', least(low === high ? low : `${low}..${high}`, p.unproved)],
    ['roofs', !roofs ? (timed(p) ? 'not calibrated' : '')
        : `GEMM ${rate(roofs.gemm_flops, 'FLOP/s')}, copy ${rate(roofs.copy_bytes, 'B/s')}`],
    ['source', p.source + (p.source_why ? ` (${p.source_why})` : '')],
    ['memory peak', !p.memory_peak ? ''
        : bytes(p.memory_peak) + (p.memory_peak_op ? ' in ' + p.memory_peak_op : '')],
  ];
  return node('div', {class: 'facts'}, ...known.filter(([, value]) => value)
    .map(([name, value]) => node('span', {}, name + ' ', node('b', {}, String(value)))));
}

// Is the comparison one of times? If not, its headline has none, and says so.
const isTimed = () => D.comparison.rows.some(r => r.self_us[0] !== null);
const headline = () => D.comparison.headline.replace(/^- -> -, /, '');

function summary(view) {
  if (D.comparison && D.comparison.headline) {
    const lines = D.comparison.summary.trim().split('\n').map(line => line.split(/ {2,}/));
    view.append(card('A step, eager -> fused',
      isTimed() ? 'clean rounds, median and 95 % interval' : '',
      node('p', {class: 'headline'}, headline()),
      ...lines.map(([word, ...rest]) =>
        node('div', {}, node('b', {}, word), ' ' + rest.join('; ').replaceAll('->', '\u2192')))));
  }
  for (const p of D.profiles) {
    const {code, evidence, advice} = p.verdict;
    view.append(card(p.title, p.workload,
      banner(code, code, evidence + (advice ? ` Do: ${advice}.` : '')),
      banner(p.sm_mhz > 0 && p.sm_mhz < .75 * p.sm_standard_mhz, 'THROTTLED',
        `the SM clock was ${p.sm_mhz} of ${p.sm_standard_mhz} MHz`, true),
      banner(p.incomplete.length, 'INCOMPLETE', p.incomplete.join('; '), true),
      facts(p), rowTable(p), meanings(), memoryTable(p),
      note('per step, of the median one; self excludes children; ' +
        'a click or Enter on a title sorts'),
      ...stepStrip(p), ...p.notes.map(n => note('note: ' + n))));
  }
  drawn.summary = view.querySelectorAll('tr.op').length;
}
