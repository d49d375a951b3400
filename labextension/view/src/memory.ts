/** A bar of memory: of tenants, of programs outside the sharing, unused; beside it what is parked. */

import { make } from './dom.js';
import { bytes } from './words.js';

export interface IMemory {
  total: number;
  used: number;
  outside: number;
  parked: number;
}

export function memoryText(memory: IMemory): string {
  const parts = [`${bytes(memory.used)} of ${bytes(memory.total)}`];
  if (memory.outside > 0) {
    parts.push(`${bytes(memory.outside)} outside`);
  }
  if (memory.parked > 0) {
    parts.push(`${bytes(memory.parked)} parked`);
  }
  return parts.join(', ');
}

export function memoryBar(memory: IMemory): HTMLElement {
  const outside = Math.min(memory.outside, memory.used);
  const shares: [string, number][] = [
    ['tenants', memory.used - outside],
    ['outside', outside],
    ['unused', Math.max(0, memory.total - memory.used)],
    ['parked', memory.parked]
  ];
  const whole = shares.reduce((sum, [, amount]) => sum + amount, 0);
  const bar = make('div', { class: 'bar', attributes: { 'aria-hidden': 'true' } });
  for (const [kind, amount] of shares) {
    if (amount > 0) {
      const part = make('span', { class: `share ${kind}` });
      part.style.width = `${(100 * amount) / whole}%`;
      bar.append(part);
    }
  }
  return bar;
}

export function memoryLegend(): HTMLElement {
  const words: [string, string][] = [
    ['tenants', 'used'],
    ['outside', 'outside the sharing'],
    ['parked', 'parked in host memory']
  ];
  return make(
    'span',
    { class: 'legend' },
    ...words.map(([kind, text]) => make('span', { class: `key ${kind}`, text }))
  );
}
