// Looks at each view of a profile's page as wide as the window is, sorts and opens by keys, and
// leaves in <body data-test> what is wrong.
const wrong = [];
const expect = (what, is, want) => {
  if (String(is) !== String(want)) wrong.push(`${what} is ${is}, wanted ${want}`);
};
const enter = e => e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
const open = id => {
  location.hash = id;
  show();
};
for (const [id] of kViews) {
  open(id);
  const most = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > most) wrong.push(`${id} is wider than ${most}`);
  for (const e of document.querySelectorAll('section.on *')) {
    if (!e.closest('.scroll') && e.getBoundingClientRect().right > most)
      wrong.push(`${id}: ${e.tagName} ${e.textContent.slice(0, 30)} is cut`);
  }
}
open('summary');
for (const e of document.querySelectorAll('.headline')) {
  if (e.textContent.includes('->')) wrong.push('an arrow is two letters');
}
for (const e of document.querySelectorAll('#view-summary tr.op')) {
  if (innerWidth <= 600 && e.offsetHeight > 40) wrong.push('a row has two lines');
}
for (const e of document.querySelectorAll('#view-summary .scroll')) {
  if (innerWidth >= 1280 && e.scrollWidth > e.clientWidth) wrong.push('a column is cut');
}
const first = () => document.querySelectorAll('#view-summary th')[0];
enter(first());
expect('sorted', first().getAttribute('aria-sort'), 'descending');
expect('the focus', document.activeElement === first(), true);
const frames = () => document.querySelectorAll('#view-flame svg g').length, before = frames();
enter([...document.querySelectorAll('#view-flame svg g')].at(-1));
expect('frames after Enter are fewer', frames() < before, true);
document.body.dataset.test = wrong.length ? wrong.slice(0, 5).join('; ') : 'all is there';
