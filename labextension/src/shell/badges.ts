import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { Title, Widget } from '@lumino/widgets';

import { formatKernel } from '../format';
import type { PanelModel } from '../model';
import type { IKernel } from '../state';
import { kernelIdOf } from './currentKernel';
import type { GPUShareSettings } from './settings';

/** Marks on a tab, which differ by their shape: an hourglass and a triangle (style/base.css). */
export const BADGES = {
  waits: 'jp-gpushare-mod-waiting',
  holds: 'jp-gpushare-mod-holding'
} as const;
export type Badge = keyof typeof BADGES;

/** Of one kernel; null where there is nothing to mark. */
export function badgeOf(kernel: IKernel | undefined): Badge | null {
  return kernel?.state === 'waits' || kernel?.state === 'holds' ? kernel.state : null;
}

/** Of all my kernels together: one that waits matters more, for its user may do something else. */
export function badgeOfAll(kernels: readonly IKernel[]): Badge | null {
  const badges = kernels.map(badgeOf);
  return badges.find(badge => badge === 'waits') ?? badges.find(badge => badge !== null) ?? null;
}

/** The class of a tab with this badge and no other of ours; whatever else it had stays. */
export function withBadge(className: string, badge: Badge | null): string {
  const ours: readonly string[] = Object.values(BADGES);
  const others = className.split(/\s+/).filter(name => name && !ours.includes(name));
  return [...others, ...(badge ? [BADGES[badge]] : [])].join(' ');
}

/** What the sidebar's icon says when one points at it. */
export function captionOf(kernels: readonly IKernel[], trans: TranslationBundle): string {
  const names = (state: Badge): string =>
    kernels
      .filter(kernel => kernel.state === state)
      .map(kernel => `\u2068${formatKernel(kernel)}\u2069`)
      .join(', ');
  const [waiting, holding] = [names('waits'), names('holds')];
  return [
    trans.__('GPU: who has it and who waits'),
    ...(waiting ? [trans.__('Waiting: %1', waiting)] : []),
    ...(holding ? [trans.__('Has the GPU: %1', holding)] : [])
  ].join('\n');
}

/** Puts the badges on, and takes them away. It changes nothing but at changes of the model. */
export class Badges implements IDisposable {
  constructor(private readonly _options: Badges.IOptions) {
    const { model, settings, tracker } = _options;
    model.changed.connect(this._look, this);
    settings.changed.connect(this._look, this);
    tracker?.widgetAdded.connect(this._added, this);
    tracker?.forEach(panel => {
      this._added(null, panel);
    });
    this._look();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      this._mark([]);
      Signal.clearData(this);
    }
  }

  private _added(_: unknown, panel: NotebookPanel): void {
    panel.sessionContext.kernelChanged.connect(this._look, this);
    this._look();
  }

  private _look(): void {
    const { model, settings } = this._options;
    const isTold = settings.value.showBadges && model.problem === null;
    this._mark(isTold ? (model.snapshot?.state.kernels ?? []) : []);
  }

  private _mark(kernels: readonly IKernel[]): void {
    const { sidebar, tracker, trans } = this._options;
    tracker?.forEach(panel => {
      const kernelId = kernelIdOf(panel);
      put(panel.title, badgeOf(kernels.find(kernel => kernel.kernelId === kernelId)));
    });
    put(sidebar, badgeOfAll(kernels));
    sidebar.caption = captionOf(kernels, trans);
  }

  private _isDisposed = false;
}

export namespace Badges {
  export interface IOptions {
    readonly model: PanelModel;
    readonly settings: GPUShareSettings;
    readonly tracker: Pick<INotebookTracker, 'forEach' | 'widgetAdded'> | null;
    /** The title of the panel, which is its icon in the sidebar. */
    readonly sidebar: Title<Widget>;
    readonly trans: TranslationBundle;
  }
}

function put(title: Title<Widget>, badge: Badge | null): void {
  if (badgeIn(title.className) !== badge) {
    title.className = withBadge(title.className, badge);
  }
}

function badgeIn(className: string): Badge | null {
  const names = className.split(/\s+/);
  return (['waits', 'holds'] as const).find(badge => names.includes(BADGES[badge])) ?? null;
}
