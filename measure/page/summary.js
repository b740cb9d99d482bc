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
  'Self%': 'share of the self time of all ops',
  'Self CPU': 'time of its own, without what it calls; the median step',
  'CPU total': 'time with what it calls; the median step',
  'CUDA%': 'share of the self time of all ops on the device',
  'Self CUDA': 'Self CPU, but on the device',
  'CUDA total': 'CPU total, but on the device', 'Made of': 'the ops that it stands for',
  'p95': '95 of 100 steps take less self time',
  'Disp': 'the part of self time outside the kernel, in us: checks, shapes, memory',
  'Calls': 'a step', 'Launch': 'kernels it starts, a step', 'MFLOP': 'arithmetic by its definition',
  'kB': 'each operand read or written once', 'FLOP/B': 'arithmetic for each byte',
  '%roof': 'share that it reaches of what this machine can do, by arithmetic or by bytes',
  'Pred': 'what it should take: launches, and the slower of arithmetic and bytes',
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
const meanings = titles => node('details', {},
  node('summary', {class: 'note'}, 'What the columns mean'),
  node('dl', {class: 'terms'}, ...Object.entries(kMeaning).flatMap(([name, text]) =>
    titles.includes(name) ? [node('dt', {}, name), node('dd', {}, text)] : [])));

// The cells of the table in text, without the columns that no row knows; a click sorts.
const kMemory = ['Alloc kB', 'Freed kB', 'Peak kB', 'Kept kB'],
  kApart = [...kMemory, 'Rate', 'Kernel'];
function rowTable(p, [titles, ...rows], wanted, rowClass) {
  const nameAt = titles.indexOf('Name'), number = cell => parseFloat(cell.replace('>=', ''));
  const isText = c => rows.every(r => Number.isNaN(number(r[c])));
  const columns = [nameAt, ...titles.keys()].filter((c, i) => (i === 0 || c !== nameAt) &&
    (c === nameAt || wanted(titles[c])) && rows.some(r => r[c] !== '-' && r[c] !== ''));
  const table = node('table', {class: 'sorted'});
  let by = columns.find(c => titles[c].startsWith('Self') && titles[c] !== 'Self%'), down = true;
  const title = c => node('th', {
    class: (isText(c) ? 't' : '') + (c === by ? ' by' : ''), title: kMeaning[titles[c]] || '',
    'aria-sort': c !== by ? 'none' : down ? 'descending' : 'ascending', ...act(() => sort(c)),
  }, titles[c] + (c === by ? (down ? ' \u25be' : ' \u25b4') : ''));
  function sort(c) {
    down = c === by ? !down : true;
    by = c;
    const value = r => isText(c) ? r[c] : number(r[c]) || 0, order = down ? 1 : -1;
    rows.sort((a, b) => order * (value(a) < value(b) ? 1 : -1));
    fill();
    table.querySelectorAll('th')[columns.indexOf(c)].focus();
  }
  // Names of rules may be broken where a word ends.
  const breakable = text => text.split(/(?<=_)/).flatMap(part => [part, node('wbr')]);
  // The share is drawn behind its number.
  const meter = share => `background:linear-gradient(to right, color-mix(in srgb, var(--blue) ` +
    `35%, transparent) ${share}%, transparent 0)`;
  function cell(r, c) {
    const {kernels} = p.rows.find(row => row.name === r[nameAt]) || {kernels: []};
    return node('td', {class: isText(c) ? 't' : '',
      style: titles[c].endsWith('%') && c < nameAt ? meter(number(r[c])) : '',
      title: c !== nameAt ? '' : kernels.map(k =>
        `${count(k.launches / steps(p), 'launch')} a step of ${k.name}${reading(k.name)}`)
        .join('\n\n')},
      ...(titles[c] === 'Flags' ? breakable(r[c]) : [r[c]]));
  }
  function fill() {
    table.replaceChildren(node('tr', {}, ...columns.map(title)),
      ...rows.map(r => node('tr', {class: rowClass}, ...columns.map(c => cell(r, c)))));
  }
  fill();
  return node('div', {class: 'scroll', tabindex: 0}, table);
}

// Columns that find no room beside the others.
const memoryTable = (p, cells) => node('details', {},
  node('summary', {class: 'note'}, 'Memory of each row'),
  rowTable(p, cells, title => kMemory.includes(title), ''),
  note('what it takes and gives back in a step, the most in use while it ran, and what it took ' +
    'that is held when backward begins; of a replay, in the arena by its plan'));

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

function summary(view) {
  if (D.comparison && D.comparison.headline) {
    const lines = D.comparison.summary.trim().split('\n').map(line => line.split(/ {2,}/));
    view.append(card('A step, eager \u2192 fused',
      !isTimed() ? '' : 'clean rounds, median' +
        (D.comparison.headline.includes('[') ? ' and 95 % interval' : ''),
      node('p', {class: 'headline'}, arrows(D.comparison.headline)),
      ...lines.map(([word, ...rest]) =>
        node('div', {}, node('b', {}, word), ' ' + arrows(rest.join('; '))))));
  }
  for (const [i, p] of D.profiles.entries()) {
    const {code, evidence, advice} = p.verdict;
    view.append(card(p.title, p.workload,
      banner(code, code, evidence + (advice ? ` Do: ${advice}.` : '')),
      banner(p.sm_mhz > 0 && p.sm_mhz < .75 * p.sm_standard_mhz, 'THROTTLED',
        `the SM clock was ${p.sm_mhz} of ${p.sm_standard_mhz} MHz`, true),
      banner(p.incomplete.length, 'INCOMPLETE', p.incomplete.join('; '), true),
      facts(p), rowTable(p, D.tables[i], title => !kApart.includes(title), 'op'),
      meanings(D.tables[i][0]), memoryTable(p, D.tables[i]),
      note('per step, of the median one; self excludes children; ' +
        'a click or Enter on a title sorts'),
      ...stepStrip(p), ...p.notes.map(n => note('note: ' + n)),
      ...D.kept[i].split('\n').filter(line => line).map(line => note(line))));
  }
  drawn.summary = view.querySelectorAll('tr.op').length;
}
