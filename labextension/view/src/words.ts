/** How the page words what it shows: pure functions from values to texts. */

import type { INode, IPlace, ITenant } from './answers.js';

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Three digits are enough to compare by: `812 MiB`, `3.2 GiB`, `40 GiB`. */
export function bytes(count: number): string {
  let amount = Math.max(0, count);
  let unit = 0;
  // 1023.5 would be rounded to 1024 of its unit, which is one of the next.
  while (amount >= 1023.5 && unit < BYTE_UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${amount.toFixed(unit > 0 && amount < 9.95 ? 1 : 0)} ${BYTE_UNITS[unit] ?? ''}`;
}

/** Whole seconds up to a minute, whole minutes up to an hour, then hours, then days. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 48) {
    return `${hours} h ${minutes % 60} min`;
  }
  return `${Math.floor(hours / 24)} days`;
}

export function count(amount: number): string {
  return amount.toLocaleString('en-US');
}

export function counted(amount: number, one: string, many: string): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

export function stateOf(node: Pick<INode, 'state' | 'heard_s_ago'>): string {
  switch (node.state) {
    case 'live':
      return 'live';
    case 'recovering':
      return 'starting';
    case 'conflict':
      return 'two schedulers';
    case 'silent':
      return node.heard_s_ago === null ? 'never heard' : `silent for ${duration(node.heard_s_ago)}`;
  }
}

export function nameOf(place: IPlace, isAdmin: boolean): string {
  return isAdmin && place.owner !== null ? `${place.owner}: ${place.name}` : place.name;
}

/** What is to be said of a place besides its name. */
export function notesOf(place: IPlace): string[] {
  const notes = [];
  if (place.overdue) {
    notes.push('does not give it back');
  } else if (place.recalled) {
    notes.push('is asked to give it back');
  }
  if (place.frozen) {
    notes.push('stopped from outside');
  }
  return notes;
}

/** Where a tenant stands; its time follows. */
export function standing(tenant: ITenant): string {
  if (tenant.node_state === 'silent') {
    return 'its node is silent';
  }
  switch (tenant.place) {
    case 'holder':
      return 'has the GPU';
    case 'queue':
      return tenant.position === 1
        ? 'next in line, waiting'
        : `number ${tenant.position} in line, waiting`;
    case '':
      return tenant.state === 'idle' ? 'computes nothing' : tenant.state;
  }
}
