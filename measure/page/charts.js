// Pictures of profiles: flame graph, timeline, roofline, eager against fused; and the
// digits that a model reads worst.

// ---- flame graph
function stackTree(folded) {
  const root = {name: 'all', value: 0, kids: new Map(), up: null};
  for (const text of folded.split('\n').filter(l => l)) {
    const cut = text.lastIndexOf(' '), value = +text.slice(cut + 1);
    let at = root;
    root.value += value;
    for (const name of text.slice(0, cut).split(';')) {
      if (!at.kids.has(name)) at.kids.set(name, {name, value: 0, kids: new Map(), up: at});
      at = at.kids.get(name);
      at.value += value;
    }
  }
  return root;
}

// `share`: of the room that the whole graph takes; what is opened takes all of it.
function flameOf(p, root, share) {
  const holder = node('div', {}), kRow = 22;
  const depth = n => 1 + Math.max(0, ...[...n.kids.values()].map(depth));
  function draw(top) {
    const wide_graph = top === root ? share * room() : room();
    const graph = picture(room(), depth(top) * kRow + 4);
    function add(n, x, wide, level) {
      if (wide < .4) return;
      const part = (100 * n.value / root.value).toFixed(1);
      graph.append(node('g', {style: 'cursor:pointer', ...act(() => {
        draw(n === top && n.up ? n.up : n);
        holder.querySelector('g').focus();
      })}, ...namedBox(n.name, x, level * kRow, wide, n === root ? '#b8c4d2' : nameColour(n.name)),
        node('title', {}, `${n.name}: ${time(n.value / steps(p))} a step, ${part} % of all` +
          reading(n.name))));
      for (const kid of [...n.kids.values()].sort((a, b) => b.value - a.value)) {
        add(kid, x, wide * kid.value / n.value, level + 1);
        x += wide * kid.value / n.value;
      }
    }
    add(top, 0, wide_graph, 0);
    holder.replaceChildren(graph);
  }
  draw(root);
  return holder;
}

function flame(view) {
  const roots = D.folded.map(stackTree);
  const a_step = roots.map((root, i) => root.value / steps(D.profiles[i])), most = highest(a_step);
  roots.forEach((root, i) => {
    const p = D.profiles[i], where = onDevice(p) ? 'device' : 'host';
    view.append(card(p.title, `self time on the ${where}, ${time(a_step[i])} in the mean step; ` +
      (roots.length > 1 ? 'one scale for all; ' : '') +
      'a click or Enter goes in, on the top goes out', flameOf(p, root, a_step[i] / most)));
  });
}

// ---- timeline
function timeline(view) {
  const longest = highest(D.timelines.map(t => t.end)), kRow = 22;
  D.timelines.forEach((t, i) => {
    const wide = room(), x = ns => wide * ns / longest, tops = [];
    let height = 18;
    t.lanes.forEach((lane, k) => {
      tops.push(height + 20);
      height = tops[k] + kRow * (1 + highest(t.slices.filter(s => s.lane === k).map(s => s.depth)));
    });
    const graph = picture(wide, height + 4);
    const unit = 10 ** Math.floor(Math.log10(longest));
    const every = longest / unit < 3 ? unit / 2 : unit;
    for (let at = 0; at <= longest; at += every) {
      graph.append(line(x(at), 16, x(at), height, {stroke: 'var(--faint)'}));
      if (x(at) < wide - 50) graph.append(label(x(at), 12, time(at), {class: 'tick'}));
    }
    t.lanes.forEach((lane, k) => graph.append(label(0, tops[k] - 5, lane, {class: 'tick'})));
    for (const {lane, depth, t0, ns, name, kernel} of t.slices) {
      graph.append(node('g', {class: 'slice'},
        ...namedBox(name, x(t0), tops[lane] + depth * kRow, x(ns), nameColour(name)),
        node('title', {}, `${name}: ${time(ns)}, from ${time(t0)}` + reading(kernel))));
    }
    view.append(card(D.profiles[i].title, `step ${t.step}, ${time(t.ns)}: a typical one` +
      (t.left_out ? `; ${count(t.left_out, 'call')} too short to draw` : ''), graph));
  });
  drawn.timeline = view.querySelectorAll('g.slice').length;
}

// ---- roofline
function dotsOf(p) {
  const fused = p.mode === 'fused';
  return rowsOf(p).filter(r => r.flops > 0 && moved(r) > 0 && r.typical_ns > 0).map(r => {
    const share = r.share || 0;
    return {p, r, fused, share, x: r.flops / moved(r), y: r.flops / r.typical_ns * 1e9,
      size: 4 + 20 * Math.sqrt(share), paint: fused ? 'var(--fused)' : 'var(--eager)'};
  });
}

// Logarithmic, from one power of ten to another: at(value) is its place between two ends.
function logAxis(values, from, to) {
  const power = v => Math.floor(Math.log10(v));
  const first = power(lowest(values)), last = power(highest(values)) + 1;
  const ticks = Array.from({length: last - first + 1}, (_, i) => 10 ** (first + i));
  return {ticks, at: v => from + (Math.log10(v) - first) / (last - first) * (to - from)};
}

// Each name goes to the first place round its dot where it covers nothing, or nowhere.
function placeNames(dots, taken, graph, wide_graph) {
  const overlap = (a, b) =>
    a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
  taken.push(...dots.map(d =>
    [d.cx - .7 * d.size, d.cy - .7 * d.size, 1.4 * d.size, 1.4 * d.size]));
  for (const {cx, cy, size, r: {name}, paint} of dots) {
    const wide = widthOf(name), right = size + 4, above = -size - 5, below = size + 14;
    const free = [[right, 4], [-wide - right, 4], [-wide / 2, above], [-wide / 2, below],
      [right, below], [right, above], [-wide - right, below], [-wide - right, above]]
      .map(([dx, dy]) => [cx + dx, cy + dy - 11, wide, 14])
      .find(place => place[0] >= 0 && place[0] + wide <= wide_graph &&
        !taken.some(t => overlap(place, t)));
    if (!free) continue;
    taken.push(free);
    graph.append(label(free[0], free[1] + 11, name, {class: 'halo', style: `fill:${paint}`}));
  }
}

function roofline(view) {
  const wide = room(), L = 46, R = wide - 12, T = 30, B = Math.max(Math.min(584, .7 * wide), 260);
  const graph = picture(wide, B + 56), taken = [];
  const dots = D.profiles.flatMap(dotsOf).sort((a, b) => b.share - a.share);
  const without = sum(D.profiles.map(p => rowsOf(p).length)) - dots.length;
  const {roofs} = D.profiles.find(p => p.roofs) || {};
  const x = logAxis([.05, 50, ...dots.map(d => d.x)], L, R);
  const y = logAxis([1e8, roofs ? roofs.gemm_flops : 1e10, ...dots.map(d => d.y)], B, T);
  for (const v of x.ticks) {
    graph.append(line(x.at(v), T, x.at(v), B, {stroke: 'var(--faint)'}),
      label(x.at(v), B + 18, String(+v.toPrecision(1)), {...kSoft, ...kInTheMiddle}));
  }
  for (const v of y.ticks) {
    const power = scaled(v, [[1e12, 'T', 0], [1e9, 'G', 0], [1e6, 'M', 0], [1e3, 'k', 0]]);
    graph.append(line(L, y.at(v), R, y.at(v), {stroke: 'var(--faint)'}),
      label(L - 8, y.at(v) + 4, power, {...kSoft, ...kToTheRight}));
  }
  graph.append(label(0, T - 16, 'FLOP/s'), label((L + R) / 2, B + 46,
    wide < 600 ? 'FLOP per byte' : 'FLOP per byte (of the least bytes an op must move)',
    kInTheMiddle));
  if (roofs) {
    const {gemm_flops, copy_bytes} = roofs, low = Math.max(x.ticks[0], y.ticks[0] / copy_bytes);
    const corners = [low, gemm_flops / copy_bytes, x.ticks.at(-1)];
    const points = corners.map(v => x.at(v) + ',' + y.at(Math.min(v * copy_bytes, gemm_flops)));
    const roof = y.at(gemm_flops) - 8, side = y.at(low * copy_bytes);
    graph.append(node('polyline',
      {points: points.join(' '), fill: 'none', stroke: 'var(--soft)', 'stroke-width': 2}),
      label(R, roof, 'GEMM ' + rate(gemm_flops, 'FLOP/s'), {...kToTheRight, class: 'halo'}),
      label(x.at(low) + 14, Math.min(side + 12, B - 4), 'copy ' + rate(copy_bytes, 'B/s'),
        {class: 'halo'}));
    taken.push([R - 130, roof - 12, 130, 16], [x.at(low) + 14, side, 105, 16]);
  }
  for (const d of dots) Object.assign(d, {cx: x.at(d.x), cy: y.at(d.y)});
  // From the eager rows to the one that they became.
  for (const link of D.comparison ? D.comparison.rows : []) {
    const to = dots.find(d => d.fused && (d.r.name + '(').startsWith(link.row + '('));
    for (const d of dots.filter(d => to && !d.fused && link.from.includes(d.r.name)))
      graph.append(line(d.cx, d.cy, to.cx, to.cy,
        {stroke: 'var(--soft)', 'stroke-dasharray': '4 3'}));
  }
  for (const {p, r, ...d} of dots) {
    graph.append(node('circle', {
      class: 'dot', cx: d.cx, cy: d.cy, r: d.size, stroke: d.paint, 'stroke-width': 2,
      fill: d.fused ? d.paint : 'none', 'fill-opacity': .7,
    }, node('title', {}, `${p.title}: ${r.name}\n${rate(d.y, 'FLOP/s')}, ${d.x.toFixed(2)} ` +
      `FLOP/B, ${(100 * d.share).toFixed(1)} % of self time\n${r.verdict}`)));
  }
  placeNames(dots, taken, graph, wide);
  view.append(card('Roofline',
    roofs ? 'measured roofs; the larger a dot, the more of the step it takes'
          : 'no roofs: this machine was not calibrated (the command calibrate)',
    legend([...new Set(D.profiles.map(p => p.mode))],
      `${count(without, 'row')} without FLOPs or time not drawn`), graph));
  drawn.roofline = graph.querySelectorAll('circle.dot').length + without;
}

// ---- eager against fused
function bars(view) {
  const c = D.comparison, top = highest([...c.rows.flatMap(r => r.self_us), 1e-9]);
  const times = isTimed();
  const bar = (us, mode) => node('div', {},
    node('span', {class: 'bar', style: `width:${80 * us / top}%; background:var(--${mode})`}),
    us === null ? ' -' : ' ' + time(1e3 * us));
  const kilobytes = n => (n / 1e3).toFixed(1);
  const rows = c.rows.map(r => node('div', {class: 'pair' + (times ? '' : ' untimed')},
    node('div', {}, node('b', {}, r.fused), node('div', {class: 'note'}, r.eager)),
    times ? node('div', {}, bar(r.self_us[0], 'eager'), bar(r.self_us[1], 'fused')) : null,
    node('div', {}, times ? r.shown || '-' : null, node('div', {class: 'note'},
      r.launches.join(' \u2192 '), ' launches', node('br'),
      r.bytes.map(kilobytes).join(' \u2192 '), ' kB'))));
  view.append(card('Eager against fused', arrows(D.comparison.headline),
    times ? legend(['eager', 'fused'], 'self time of a step, from profiled rounds: they only ' +
      'apportion, the headline is from clean rounds') : null, ...rows));
  drawn.bars = view.querySelectorAll('div.pair').length;
}

// ---- digits that a model reads worst
function worst(view) {
  const {columns, rows, channels, items} = D.worst, size = rows * columns;
  const summary = arrows(D.worst.summary.replace(/ {2,}/g, '; '));
  view.append(card('Read worst', summary, node('div', {class: 'values'},
    ...items.map(item => node('div', {class: 'value'},
      canvasOf(1, rows, columns, 160, i => [0, 1, 2].map(c => parseInt(item.pixels.substr(
        2 * (i + (channels > 1 ? c * size : 0)), 2), 16))),
      node('b', {}, `label ${item.label}, read as ${item.read_as}`),
      note(`item ${item.item}, loss ${item.loss === null ? 'nan' : item.loss.toFixed(2)}`))))));
  drawn.worst = view.querySelectorAll('div.value').length;
}
