/** Tables of notebooks and other tenants. */

import type { ITenant } from './answers.js';
import { filled, Keyed, make, since, type IPart } from './dom.js';
import { bytes, counted, duration, standing } from './words.js';

type Column = 'node' | 'owner' | 'had';

const TITLES: Record<Column, string> = { node: 'Node', owner: 'User', had: 'So far' };

/** With the columns that are asked for besides the name, the state and the memory. */
export class TenantsTable implements IPart<readonly ITenant[]> {
  constructor(caption: string, columns: readonly Column[]) {
    const head = ['Notebook', ...columns.filter(each => each !== 'had').map(each => TITLES[each])];
    head.push('State', 'GPU memory', ...(columns.includes('had') ? [TITLES.had] : []));
    const body = make('tbody');
    this.root = make(
      'table',
      { class: 'tenants' },
      make('caption', { class: 'unseen', text: caption }),
      make(
        'thead',
        {},
        make('tr', {}, ...head.map(text => make('th', { text, attributes: { scope: 'col' } })))
      ),
      body
    );
    this._rows = new Keyed(
      body,
      tenant => `${tenant.node} ${tenant.id}`,
      () => filled<ITenant>(make('tr'), tenant => cellsOf(tenant, columns))
    );
  }

  show(tenants: readonly ITenant[]): void {
    this._rows.show(tenants);
  }

  readonly root: HTMLElement;
  private readonly _rows: Keyed<ITenant>;
}

function cellsOf(tenant: ITenant, columns: readonly Column[]): HTMLElement[] {
  const name = make('th', { class: 'name', text: tenant.name, attributes: { scope: 'row' } });
  if (tenant.kind !== 'kernel') {
    name.append(' ', make('span', { class: 'tag', text: tenant.kind }));
  }
  const holds = tenant.place === 'holder' ? 'holds' : '';
  const state = make('td', { class: `standing ${holds}`, text: standing(tenant) });
  if (tenant.for_s !== null && tenant.node_state !== 'silent') {
    state.append(' ', since(tenant.for_s));
  }
  if (tenant.why) {
    state.append(make('p', { class: 'why', text: tenant.why }));
  }
  const turns = counted(tenant.turns, 'turn', 'turns');
  const told: Record<Column, string> = {
    node: tenant.node,
    owner: tenant.owner,
    had: `${turns}, waited ${duration(tenant.waited_s)}`
  };
  const cells = columns.map(each => ({ each, cell: make('td', { text: told[each] }) }));
  return [
    name,
    ...cells.filter(({ each }) => each !== 'had').map(({ cell }) => cell),
    state,
    make('td', { text: memoryOf(tenant) }),
    ...cells.filter(({ each }) => each === 'had').map(({ cell }) => cell)
  ];
}

function memoryOf(tenant: ITenant): string {
  const parts = tenant.bytes_resident > 0 ? [bytes(tenant.bytes_resident)] : [];
  if (tenant.bytes_parked > 0) {
    parts.push(`${bytes(tenant.bytes_parked)} parked`);
  }
  return parts.length > 0 ? parts.join(', ') : '\u2013';
}
