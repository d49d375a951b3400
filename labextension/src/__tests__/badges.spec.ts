import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { Title, Widget } from '@lumino/widgets';

import {
  BADGES,
  badgeOf,
  badgeOfAll,
  Badges,
  captionOf,
  withBadge,
  type Badge
} from '../shell/badges';
import { GPUShareSettings } from '../shell/settings';
import { KERNEL_STATES, parseState, type IKernel } from '../state';
import { kernel, state } from './support/states';

const trans = nullTranslator.load('jupyter_gpushare');

function kernelsOf(...fields: object[]): readonly IKernel[] {
  return parseState(state({ kernels: fields.map(each => kernel(each)) })).kernels;
}

describe('a badge', () => {
  it('marks kernels that wait or have the GPU, and no others', () => {
    const badges = kernelsOf(...KERNEL_STATES.map(each => ({ state: each }))).map(badgeOf);
    expect(badges).toEqual([null, 'waits', 'holds', null, null]);
    expect(badgeOf(undefined)).toBeNull();
  });

  it('tells of all kernels that one waits, else that one has the GPU', () => {
    expect(badgeOfAll(kernelsOf({ state: 'holds' }, { state: 'waits' }))).toBe('waits');
    expect(badgeOfAll(kernelsOf({ state: 'idle' }, { state: 'holds' }))).toBe('holds');
    expect(badgeOfAll([])).toBeNull();
  });

  it('leaves the other classes of a tab as they are', () => {
    const waiting = withBadge('jp-mod-dirty', 'waits');
    expect(waiting).toBe(`jp-mod-dirty ${BADGES.waits}`);
    expect(withBadge(waiting, 'holds')).toBe(`jp-mod-dirty ${BADGES.holds}`);
    expect(withBadge(waiting, null)).toBe('jp-mod-dirty');
    expect(withBadge('', null)).toBe('');
  });

  it('has words at the icon of the sidebar', () => {
    const kernels = kernelsOf({ state: 'waits' }, { state: 'holds', path: 'b.ipynb' });
    expect(
      captionOf(kernels, trans)
        .replace(/[\u2068\u2069]/g, '')
        .split('\n')
    ).toEqual(['GPU: who has it and who waits', 'Waiting: train.ipynb', 'Has the GPU: b.ipynb']);
  });
});

/** A tab of a notebook with this kernel; it has another class already. */
function tab(kernelId: string | null): { panel: object; title: Title<Widget> } {
  const widget = new Widget();
  const { title } = widget;
  title.className = 'jp-mod-dirty';
  const sessionContext = {
    kernelChanged: new Signal({}),
    session: kernelId === null ? null : { kernel: { id: kernelId } }
  };
  return { panel: { title, sessionContext }, title };
}

describe('Badges', () => {
  const model = { problem: null as object | null, snapshot: null as object | null };
  const changed = new Signal<object, undefined>(model);
  const added = new Signal<object, object>({});
  let tabs: ReturnType<typeof tab>[];
  let sidebar: Title<Widget>;
  let settings: GPUShareSettings;
  let badges: Badges;

  beforeEach(() => {
    Object.assign(model, { problem: null, snapshot: null });
    tabs = [tab('k1'), tab('k1'), tab('k2'), tab(null)];
    sidebar = new Widget().title;
    settings = new GPUShareSettings();
    const forEach = (visit: (panel: object) => void): void => {
      tabs.forEach(each => {
        visit(each.panel);
      });
    };
    const tracker = { forEach, widgetAdded: added };
    const options = { model: Object.assign(model, { changed }), settings, sidebar, tracker, trans };
    badges = new Badges(options as unknown as Badges.IOptions);
  });

  afterEach(() => {
    badges.dispose();
  });

  function tell(...kernels: object[]): void {
    const told = parseState(state({ kernels: kernels.map(each => kernel(each)) }));
    model.snapshot = { state: told, receivedAtMs: 0 };
    changed.emit(undefined);
  }

  function shown(): (Badge | null)[] {
    return [...tabs.map(each => each.title), sidebar].map(
      title =>
        (['waits', 'holds'] as const).find(badge => title.className.includes(BADGES[badge])) ?? null
    );
  }

  it('marks each tab of a notebook that waits, and the sidebar', () => {
    tell({ state: 'waits' }, { kernel_id: 'k2', state: 'holds' });
    expect(shown()).toEqual(['waits', 'waits', 'holds', null, 'waits']);
    tell({ state: 'holds' });
    expect(shown()).toEqual(['holds', 'holds', null, null, 'holds']);
  });

  it('puts every tab back as it was', () => {
    tell({ state: 'waits' });
    tell({ state: 'idle' });
    expect(shown()).toEqual([null, null, null, null, null]);
    expect(tabs[0]?.title.className).toBe('jp-mod-dirty');
    tell({ state: 'waits' });
    badges.dispose();
    expect(shown()).toEqual([null, null, null, null, null]);
  });

  it('marks a notebook that is opened or restored while its kernel waits', () => {
    tell({ state: 'waits' });
    const restored = tab('k1');
    tabs.push(restored);
    added.emit(restored.panel);
    expect(shown()).toEqual(['waits', 'waits', null, null, 'waits', 'waits']);
  });

  it('changes no tab that stays as it is, and runs no timer', () => {
    jest.useFakeTimers();
    tell({ state: 'waits' });
    let changes = 0;
    tabs.forEach(({ title }) => title.changed.connect(() => (changes += 1)));
    sidebar.changed.connect(() => (changes += 1));
    tell({ state: 'waits' });
    expect(changes).toBe(0);
    expect(jest.getTimerCount()).toBe(0);
    jest.useRealTimers();
  });

  it('shows none when the user wants none, or the server does not answer', async () => {
    tell({ state: 'waits' });
    await settings.set('showBadges', false);
    expect(shown()).toEqual([null, null, null, null, null]);
    await settings.set('showBadges', true);
    expect(shown()[0]).toBe('waits');
    model.problem = { kind: 'unreachable' };
    changed.emit(undefined);
    expect(shown()).toEqual([null, null, null, null, null]);
  });
});
