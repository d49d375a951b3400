/** The page: what is asked stands in its address, and what comes is shown. */

import { argumentsOf, type IAnswer, type IAsked } from './answers.js';
import { byId, make, setText, tick } from './dom.js';
import { Feed, type Connection } from './feed.js';
import { NodesTable } from './nodes.js';
import { problemsText, showAdvice, totals } from './summary.js';
import { TenantsTable } from './tenants.js';
import { count, counted, duration } from './words.js';

const ROWS_MAX = 100;
const TYPING_MS = 150;
const FILTERS = {
  '': 'all nodes',
  problems: 'nodes that need a look',
  free: 'nodes with a free GPU',
  waiting: 'nodes where somebody waits',
  silent: 'silent nodes'
};
const SORTS = {
  problems: 'what needs a look',
  name: 'name',
  waiting: 'who waits',
  free: 'free GPUs'
};

class Page {
  /** `xsrf` shows the hub that it is this page that asks. */
  constructor(
    asked: Partial<IAsked>,
    first: IAnswer,
    private readonly _xsrf: string
  ) {
    this._asked = {
      show: 'nodes',
      find: '',
      state: '',
      sort: 'name',
      offset: 0,
      open: '',
      ...asked
    };
    this._usualSort = first.summary.caller.is_admin ? 'problems' : 'free';
    this._isAdmin = first.summary.caller.is_admin;
    this._nodes = new NodesTable(this._isAdmin, name => {
      this._ask({ open: this._asked.open === name ? '' : name });
    });
    this._tenants = new TenantsTable('Notebooks of all nodes', ['owner', 'node', 'had']);
    this._mine = new TenantsTable('Your notebooks', ['node', 'had']);
    byId('mine-table').append(this._mine.root);
    this._feed = new Feed(
      `api/v1/summary?${new URLSearchParams({ _xsrf: this._xsrf }).toString()}`,
      answer => {
        this._show(answer as IAnswer);
      },
      (connection, message) => {
        this._showConnection(connection, message);
      }
    );
    this._prepare(first);
    this._show(first);
    this._follow();
    setInterval(() => {
      tick(duration);
    }, 1000);
  }

  private _prepare(first: IAnswer): void {
    const { caller } = first.summary;
    setText(byId('who'), caller.is_admin ? `${caller.name}, administrator` : caller.name);
    byId('tabs').hidden = !caller.is_admin;
    this._sort.append(...options(SORTS, caller.is_admin ? '' : 'problems'));
    this._state.append(...options(FILTERS, caller.is_admin ? '' : 'problems'));
    this._find.value = this._asked.find;
    this._sort.value = this._asked.sort;
    this._state.value = this._asked.state;
    let typing: ReturnType<typeof setTimeout> | undefined;
    this._find.oninput = () => {
      clearTimeout(typing);
      typing = setTimeout(() => {
        this._ask({ find: this._find.value.trim() });
      }, TYPING_MS);
    };
    this._sort.onchange = () => {
      this._ask({ sort: this._sort.value });
    };
    this._state.onchange = () => {
      this._ask({ state: this._state.value });
    };
    byId('tools').onsubmit = event => {
      event.preventDefault();
    };
    byId('previous').onclick = () => {
      this._turn(-ROWS_MAX);
    };
    byId('next').onclick = () => {
      this._turn(ROWS_MAX);
    };
    for (const tab of byId('tabs').querySelectorAll<HTMLElement>('[data-show]')) {
      tab.onclick = () => {
        this._ask({ show: tab.dataset['show'] ?? 'nodes', open: '' });
      };
    }
  }

  /** A new query begins on its first page. */
  private _ask(change: Partial<IAsked>): void {
    const isSamePage = Object.keys(change).every(each => each === 'open');
    this._asked = { ...this._asked, ...(isSamePage ? {} : { offset: 0 }), ...change };
    this._isAsked = !isSamePage;
    const shown = argumentsOf(this._asked);
    shown.delete('offset');
    for (const [name, usual] of [
      ['show', 'nodes'],
      ['sort', this._usualSort]
    ] as const) {
      if (shown.get(name) === usual) {
        shown.delete(name);
      }
    }
    history.replaceState(null, '', shown.size > 0 ? `?${shown.toString()}` : location.pathname);
    this._follow();
  }

  private _turn(rows: number): void {
    this._asked.offset = Math.max(0, this._asked.offset + rows);
    this._isAsked = true;
    this._follow();
    byId('nodes').scrollIntoView();
  }

  private _follow(): void {
    const asked = argumentsOf(this._asked);
    asked.set('summary', '1');
    asked.set('_xsrf', this._xsrf);
    this._feed.follow(`api/v1/events?${asked.toString()}`);
    for (const tab of byId('tabs').querySelectorAll<HTMLElement>('[data-show]')) {
      tab.setAttribute('aria-pressed', String(tab.dataset['show'] === this._asked.show));
    }
    setText(byId('nodes-heading'), this._asked.show === 'tenants' ? 'Notebooks' : 'Nodes');
    const isNodes = this._asked.show === 'nodes';
    for (const tool of [this._sort, this._state]) {
      tool.parentElement?.toggleAttribute('hidden', !isNodes);
    }
    this._showLinks();
  }

  private _show(answer: IAnswer): void {
    const { summary } = answer;
    totals.show(summary);
    showAdvice(summary.advice);
    byId('mine').hidden = summary.mine.total === 0 && this._isAdmin;
    this._mine.show(summary.mine.tenants);
    this._showTable(answer);
    this._showCount(answer);
    tick(duration);
  }

  private _showTable(answer: IAnswer): void {
    const place = byId('table');
    const empty = this._emptiness(answer);
    if (empty) {
      if (place.firstElementChild?.textContent !== empty.textContent) {
        place.replaceChildren(empty);
      }
      return;
    }
    const part = answer.tenants ? this._tenants : this._nodes;
    if (answer.tenants) {
      this._tenants.show(answer.tenants);
    } else {
      const opened = answer.node ?? null;
      this._nodes.show({ nodes: answer.nodes ?? [], open: this._asked.open, opened });
    }
    if (part.root.parentElement !== place) {
      place.replaceChildren(part.root);
    }
  }

  /** What stands in the place of an empty table. */
  private _emptiness(answer: IAnswer): HTMLElement | null {
    if (answer.total > 0) {
      return null;
    }
    if (answer.summary.nodes > 0) {
      return make('p', { class: 'empty', text: 'Nothing fits what you look for.' });
    }
    const told = make('div', { class: 'empty' }, make('p', { text: 'No node has reported yet.' }));
    if (!this._isAdmin) {
      told.append(make('p', { text: 'Ask an administrator whether nodes report to this page.' }));
      return told;
    }
    const address = new URL('api/v1/reports', location.href).href;
    told.append(
      make(
        'p',
        {},
        'Make a token for each node: ',
        make('code', { text: 'jupyter gpushare view token NODE' })
      ),
      make(
        'p',
        {},
        'Then start its scheduler with ',
        make('code', { text: `--report-to ${address} --report-token-file FILE` })
      )
    );
    return told;
  }

  private _showCount(answer: IAnswer): void {
    const { total, summary } = answer;
    const isNodes = answer.tenants === undefined;
    const found = isNodes
      ? counted(total, 'node', 'nodes')
      : counted(total, 'notebook', 'notebooks');
    const parts = [found];
    if (isNodes && this._isAdmin && summary.problems > 0 && this._asked.state !== 'problems') {
      parts.push(problemsText(summary.problems));
    }
    // A reader who changes the query is told what came of it; figures that count by themselves
    // would never end.
    const text = parts.join(' \u00b7 ');
    byId('count').setAttribute('aria-live', this._isAsked ? 'polite' : 'off');
    setText(byId('count'), text);
    this._isAsked = false;
    const first = this._asked.offset;
    const last = Math.min(total, first + ROWS_MAX);
    byId('pager').hidden = total <= ROWS_MAX && first === 0;
    setText(
      byId('range'),
      `${count(Math.min(first + 1, total))}\u2013${count(last)} of ${count(total)}`
    );
    byId('previous').toggleAttribute('disabled', first === 0);
    byId('next').toggleAttribute('disabled', last >= total);
  }

  private _showConnection(connection: Connection, message: string): void {
    const place = byId('connection');
    place.className = `connection ${connection}`;
    if (connection === 'live') {
      this._heard = new Date();
      setText(place, 'live');
      return;
    }
    const when = this._heard.toLocaleTimeString();
    const lost = `Connection lost at ${when}. What you see is older; trying again \u2026`;
    setText(place, message || lost);
  }

  private _showLinks(): void {
    const asked = argumentsOf({ ...this._asked, show: '', open: '' });
    const kind = this._asked.show === 'tenants' ? 'tenants' : 'nodes';
    const links = [link(`api/v1/${kind}?${asked.toString()}`, 'This table as JSON')];
    const hours = this._isAdmin ? 'GPU-hours as CSV' : 'Your GPU-hours as CSV';
    links.push(link('api/v1/usage.csv', hours));
    links.push(link('api/v1/openapi.yaml', 'The API'));
    byId('links').replaceChildren(...links.flatMap(each => [each, ' ']));
  }

  private _asked: IAsked;
  private _heard = new Date();
  private _isAsked = false;
  private readonly _isAdmin: boolean;
  private readonly _usualSort: string;
  private readonly _nodes: NodesTable;
  private readonly _tenants: TenantsTable;
  private readonly _mine: TenantsTable;
  private readonly _feed: Feed;
  private readonly _find = byId('find') as HTMLInputElement;
  private readonly _state = byId('state') as HTMLSelectElement;
  private readonly _sort = byId('sort') as HTMLSelectElement;
}

function options(known: Record<string, string>, without: string): HTMLElement[] {
  return Object.entries(known)
    .filter(([value]) => without === '' || value !== without)
    .map(([value, text]) => make('option', { text, attributes: { value } }));
}

function link(href: string, text: string): HTMLElement {
  return make('a', { text, attributes: { href } });
}

const first = JSON.parse(byId('first').textContent) as {
  asked: Partial<IAsked>;
  answer: IAnswer;
  xsrf: string;
};
new Page(first.asked, first.answer, first.xsrf);
