/** The table of nodes: a row each, its problems below it, and what is on it where it is opened. */

import type { IDevice, INode, IOpenNode, IPlace } from './answers.js';
import { filled, Keyed, make, setText, since, type IPart } from './dom.js';
import { memoryBar, memoryText, type IMemory } from './memory.js';
import { TenantsTable } from './tenants.js';
import { bytes, count, counted, nameOf, notesOf, stateOf } from './words.js';

const COLUMNS = ['Node', 'GPUs', 'In use by', 'Waiting', 'GPU memory', 'Version'];
/** Columns that narrow screens leave to the opened node. */
const FOLDED = ['', '', '', '', 'folds', 'folds'];

export interface INodes {
  nodes: readonly INode[];
  open: string;
  opened: IOpenNode | null;
}

interface IRow {
  node: INode;
  isOpen: boolean;
  opened: IOpenNode | null;
}

export class NodesTable implements IPart<INodes> {
  /** `onOpen` is told the name of a node that is to be opened or closed. */
  constructor(isAdmin: boolean, onOpen: (name: string) => void) {
    this.root = make(
      'table',
      { class: 'nodes' },
      make('caption', { class: 'unseen', text: 'Nodes, with those who have their GPUs' }),
      make(
        'thead',
        {},
        make(
          'tr',
          {},
          ...COLUMNS.map((text, column) =>
            make('th', { text, class: FOLDED[column] ?? '', attributes: { scope: 'col' } })
          )
        )
      )
    );
    this._rows = new Keyed(
      this.root,
      row => row.node.name,
      row => new NodePart(row.node.name, isAdmin, onOpen)
    );
  }

  show({ nodes, open, opened }: INodes): void {
    const rows = nodes.map(node => {
      const isOpen = node.name === open;
      return { node, isOpen, opened: isOpen ? opened : null };
    });
    this._rows.show(rows);
  }

  readonly root: HTMLTableElement;
  private readonly _rows: Keyed<IRow>;
}

class NodePart implements IPart<IRow> {
  constructor(name: string, isAdmin: boolean, onOpen: (name: string) => void) {
    this._button = make(
      'button',
      { class: 'opens', attributes: { type: 'button', 'aria-expanded': 'false' } },
      name
    );
    this._button.onclick = () => {
      onOpen(name);
    };
    this._state = make('span', { class: 'state' });
    const tags = make('span', { class: 'tags' });
    this._tags = filled<INode>(tags, tagsOf);
    const title = make(
      'th',
      { attributes: { scope: 'row' } },
      make('span', { class: 'title' }, this._button, this._state),
      tags
    );
    const cells = COLUMNS.slice(1).map((_, at) => make('td', { class: FOLDED[at + 1] ?? '' }));
    this._cells = cells.map((cell, at) => filled<INode>(cell, node => CELLS[at]?.(node) ?? []));
    this._problems = filled<string[]>(make('ul', { class: 'problems' }), problems =>
      problems.map(text => make('li', { text }))
    );
    this._problemsRow = wideRow(this._problems.root);
    this._detail = new Detail(isAdmin);
    this._detailRow = wideRow(this._detail.root);
    this.root = make('tbody', {}, make('tr', {}, title, ...cells));
  }

  show({ node, isOpen, opened }: IRow): void {
    this.root.className = node.state;
    this._button.setAttribute('aria-expanded', String(isOpen));
    setText(this._state, stateOf(node));
    this._tags.show(node);
    for (const cell of this._cells) {
      cell.show(node);
    }
    this._problems.show(node.problems);
    showRow(this.root, this._problemsRow, node.problems.length > 0);
    if (opened) {
      this._detail.show(opened);
    }
    showRow(this.root, this._detailRow, isOpen && opened !== null);
  }

  readonly root: HTMLElement;
  private readonly _button: HTMLElement;
  private readonly _state: HTMLElement;
  private readonly _tags: IPart<INode>;
  private readonly _cells: IPart<INode>[];
  private readonly _problems: IPart<string[]>;
  private readonly _problemsRow: HTMLElement;
  private readonly _detail: Detail;
  private readonly _detailRow: HTMLElement;
}

function wideRow(content: HTMLElement): HTMLElement {
  const cell = make('td', { attributes: { colspan: String(COLUMNS.length) } }, content);
  return make('tr', { class: 'below' }, cell);
}

function showRow(body: HTMLElement, row: HTMLElement, isShown: boolean): void {
  if (isShown && !row.isConnected) {
    body.append(row);
  } else if (!isShown && row.isConnected) {
    row.remove();
  }
}

function tagsOf(node: INode): HTMLElement[] {
  const tags = [];
  if (node.version_differs) {
    tags.push(make('span', { class: 'tag warns', text: `version ${node.version}` }));
  }
  if (node.outside) {
    const text = `${bytes(node.bytes_outside)} outside the sharing`;
    tags.push(make('span', { class: 'tag warns', text }));
  }
  if (node.platform) {
    tags.push(make('span', { class: 'tag', text: node.platform }));
  }
  return tags;
}

const CELLS: ((node: INode) => (Node | string)[])[] = [
  node => [`${count(node.devices_free)} of ${count(node.devices)} free`],
  node => {
    const more = node.holders_count - node.holders.length;
    const lines = node.holders.map(text => make('li', { text }));
    if (more > 0) {
      lines.push(make('li', { class: 'note', text: `and ${count(more)} more` }));
    }
    lines.push(...node.found.map(text => make('li', { class: 'note', text: `here: ${text}` })));
    return lines.length > 0 ? [make('ul', { class: 'names' }, ...lines)] : ['\u2013'];
  },
  node => [node.waiting > 0 ? count(node.waiting) : '\u2013'],
  node => {
    const memory = memoryOf(node);
    return [memoryBar(memory), make('span', { class: 'note', text: memoryText(memory) })];
  },
  node => [node.version || '\u2013']
];

function memoryOf(node: Omit<INode, 'devices'>): IMemory {
  return {
    total: node.bytes_total,
    used: node.bytes_used,
    outside: node.bytes_outside,
    parked: node.bytes_parked
  };
}

interface INamedDevice extends IDevice {
  id: string;
}

/** An opened node. */
class Detail implements IPart<IOpenNode> {
  constructor(private readonly _isAdmin: boolean) {
    const list = make('div', { class: 'devices' });
    this._devices = new Keyed<INamedDevice>(
      list,
      device => device.id,
      () =>
        filled<INamedDevice>(make('article', { class: 'device' }), device => this._device(device))
    );
    const facts = make('p', { class: 'facts' });
    this._facts = filled<IOpenNode>(facts, node => [factsOf(node)]);
    this._tenants = new TenantsTable(
      'Notebooks on this node',
      this._isAdmin ? ['owner', 'had'] : ['had']
    );
    const label = { role: 'region', 'aria-label': 'Notebooks on this node', tabindex: '0' };
    this._tenantsPlace = make(
      'div',
      {},
      make('h3', { text: 'Notebooks here' }),
      make('div', { class: 'on-node', attributes: label }, this._tenants.root),
      this._more.root
    );
    this.root = make('div', { class: 'detail' }, facts, list, this._tenantsPlace);
  }

  show(node: IOpenNode): void {
    this._facts.show(node);
    this._devices.show(Object.entries(node.devices).map(([id, device]) => ({ ...device, id })));
    this._tenants.show(node.tenants);
    this._tenantsPlace.hidden = node.tenants.length === 0;
    this._more.show(node.tenants_count - node.tenants.length);
  }

  private _device(device: INamedDevice): HTMLElement[] {
    const memory = {
      total: device.bytes_total,
      used: device.bytes_used,
      outside: device.bytes_outside,
      parked: 0
    };
    const title = make('h3', { text: device.name });
    title.append(
      ' ',
      make('span', { class: 'note', text: device.id.slice(0, 8), title: device.id })
    );
    const parts: HTMLElement[] = [title];
    if (device.lost) {
      parts.push(
        make('p', { class: 'tag warns', text: 'lost: the driver does not answer for it' })
      );
    } else if (device.mode !== 'open') {
      parts.push(make('p', { class: 'tag', text: device.mode }));
    }
    parts.push(memoryBar(memory), make('p', { class: 'note', text: memoryText(memory) }));
    parts.push(...device.holders.map(each => this._place(make('p', { class: 'holder' }), each)));
    parts.push(...more(device.holders_count - device.holders.length));
    if (device.holders.length === 0 && !device.lost) {
      parts.push(make('p', { class: 'note', text: 'nobody has a turn' }));
    }
    if (device.queue.length > 0) {
      const queue = device.queue.map(each => this._place(make('li'), each));
      const label = { 'aria-label': 'Queue, in order' };
      parts.push(make('ol', { class: 'queue', attributes: label }, ...queue));
      parts.push(...more(device.queue_count - device.queue.length));
    }
    return parts;
  }

  private _place(root: HTMLElement, place: IPlace): HTMLElement {
    root.classList.toggle('mine', place.mine && !this._isAdmin);
    root.append(make('span', { class: 'who-has', text: nameOf(place, this._isAdmin) }), ' ');
    root.append(since(place.for_s));
    const notes = notesOf(place);
    if (notes.length > 0) {
      root.append(make('span', { class: 'warns', text: `, ${notes.join(', ')}` }));
    }
    return root;
  }

  readonly root: HTMLElement;
  private readonly _more = filled<number>(make('div'), more);
  private readonly _devices: Keyed<INamedDevice>;
  private readonly _facts: IPart<IOpenNode>;
  private readonly _tenants: TenantsTable;
  private readonly _tenantsPlace: HTMLElement;
}

function more(amount: number): HTMLElement[] {
  return amount > 0 ? [make('p', { class: 'note', text: `and ${count(amount)} more` })] : [];
}

function factsOf(node: IOpenNode): string {
  const facts = [`Version ${node.version || 'unknown'}`];
  if (node.platform) {
    facts.push(node.platform);
  }
  facts.push(node.owners === 'accounts' ? 'users are accounts of the node' : 'users of the hub');
  if (node.bytes_host_available > 0) {
    facts.push(`${bytes(node.bytes_host_available)} of host memory left to park in`);
  }
  if (!node.turns_on) {
    facts.push('turns are off: all compute at once');
  }
  const waiting = counted(node.waiting, 'waits', 'wait');
  return `${facts.join(' \u00b7 ')}${node.waiting > 0 ? ` \u00b7 ${waiting}` : ''}`;
}
