/** Elements made and kept: texts are never read as HTML, and what has not changed stays. */

interface IOptions {
  class?: string;
  text?: string;
  title?: string;
  attributes?: Record<string, string>;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  options: IOptions = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (options.class) {
    element.className = options.class;
  }
  if (options.text !== undefined) {
    element.textContent = options.text;
  }
  if (options.title !== undefined) {
    element.title = options.title;
  }
  for (const [name, value] of Object.entries(options.attributes ?? {})) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) {
    throw new Error(`The page has no element ${id}.`);
  }
  return found;
}

export function setText(element: Element, text: string): void {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** A part of the page that shows one item. */
export interface IPart<T> {
  readonly root: HTMLElement;
  show(item: T): void;
}

/** A part that is filled anew whenever its item has changed by more than time. */
export function filled<T>(root: HTMLElement, fill: (item: T) => (Node | string)[]): IPart<T> {
  let shown = '';
  return {
    root,
    show(item: T): void {
      const now = JSON.stringify(item, withoutTimes);
      if (now !== shown) {
        shown = now;
        root.replaceChildren(...fill(item));
      }
    }
  };
}

/** When a turn began stays, to some seconds. */
function withoutTimes(key: string, value: unknown): unknown {
  if (key === 'for_s' && typeof value === 'number') {
    return Math.round((performance.now() / 1000 - value) / 4);
  }
  return key === 'at' || key === 'heard_s_ago' ? undefined : value;
}

/** Parts in the order of their items, behind what the parent has already. A part stays the item's
 * as long as the item has its key, and keeps the focus of the keyboard. */
export class Keyed<T> {
  constructor(
    private readonly _parent: HTMLElement,
    private readonly _keyOf: (item: T) => string,
    private readonly _create: (item: T) => IPart<T>
  ) {
    this._before = _parent.lastChild;
  }

  show(items: readonly T[]): void {
    const focused = document.activeElement;
    const keys = new Set(items.map(this._keyOf));
    for (const [key, part] of this._parts) {
      if (!keys.has(key)) {
        part.root.remove();
        this._parts.delete(key);
      }
    }
    let place = this._before ? this._before.nextSibling : this._parent.firstChild;
    for (const item of items) {
      const part = this._parts.get(this._keyOf(item)) ?? this._create(item);
      this._parts.set(this._keyOf(item), part);
      part.show(item);
      if (part.root === place) {
        place = place.nextSibling;
      } else {
        this._parent.insertBefore(part.root, place);
      }
    }
    if (focused instanceof HTMLElement && focused !== document.activeElement) {
      focused.focus({ preventScroll: true });
    }
  }

  private readonly _before: ChildNode | null;
  private readonly _parts = new Map<string, IPart<T>>();
}

/** A time that goes on by itself. */
export function since(forS: number, prefix = 'for '): HTMLElement {
  const element = make('span', { class: 'since' });
  element.dataset['since'] = String(performance.now() - forS * 1000);
  element.dataset['prefix'] = prefix;
  return element;
}

/** Let all times go on. */
export function tick(duration: (seconds: number) => string): void {
  for (const element of document.querySelectorAll<HTMLElement>('[data-since]')) {
    const seconds = (performance.now() - Number(element.dataset['since'])) / 1000;
    setText(element, `${element.dataset['prefix'] ?? ''}${duration(seconds)}`);
  }
}
