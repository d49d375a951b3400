/** The totals on top, and where there is room. */

import type { ISummary } from './answers.js';
import { byId, filled, make } from './dom.js';
import { memoryBar, memoryLegend, memoryText } from './memory.js';
import { count, counted } from './words.js';

export const totals = filled<ISummary>(byId('totals'), summary => {
  const { states } = summary;
  const amiss = [
    [states.silent, 'silent'],
    [states.conflict, 'with two schedulers'],
    [states.recovering, 'starting']
  ] as const;
  const notes = amiss.flatMap(([amount, word]) => (amount ? [`${count(amount)} ${word}`] : []));
  const others = notes.length > 0 ? notes.join(', ') : 'all live';
  const memory = {
    total: summary.bytes_total,
    used: summary.bytes_used,
    outside: summary.bytes_outside,
    parked: summary.bytes_parked
  };
  return [
    figure('Nodes', count(summary.nodes), summary.nodes > 0 ? others : ''),
    figure(
      'GPUs',
      count(summary.devices),
      `${count(summary.busy)} busy, ${count(summary.free)} free`
    ),
    figure('Waiting', count(summary.waiting), summary.waiting === 1 ? 'notebook' : 'notebooks'),
    make(
      'div',
      { class: 'figure memory' },
      make('dt', { text: 'GPU memory' }),
      make('dd', {}, make('span', { text: memoryText(memory) }), memoryBar(memory), memoryLegend())
    )
  ];
});

function figure(name: string, value: string, note: string): HTMLElement {
  return make(
    'div',
    { class: 'figure' },
    make('dt', { text: name }),
    make(
      'dd',
      {},
      make('strong', { text: value }),
      ' ',
      make('span', { class: 'note', text: note })
    )
  );
}

const list = filled<ISummary['advice']>(byId('advice-list'), advice =>
  advice.map(each => make('li', { text: each.sentence }))
);

export function showAdvice(advice: ISummary['advice']): void {
  byId('advice').hidden = advice.length === 0;
  list.show(advice);
}

export function problemsText(problems: number): string {
  return counted(problems, 'node needs a look', 'nodes need a look');
}
