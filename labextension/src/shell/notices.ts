import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import type { PanelModel } from '../model';
import type { Claims } from './claims';
import { isWorthTelling, lookAtWaits, type IServed, type WaitsSeen } from './served';
import type { GPUShareSettings } from './settings';

/** Tells that a wait has ended, once, and only to somebody who does not see it anyway. */
export class Notices implements IDisposable {
  constructor(private readonly _options: Notices.IOptions) {
    _options.model.changed.connect(this._look, this);
    this._look();
  }

  /** Somebody has asked, or what was asked for is over. */
  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      this._later.forEach(timer => {
        window.clearTimeout(timer);
      });
      Signal.clearData(this);
    }
  }

  isAsked(kernelId: string): boolean {
    return this._asked.has(kernelId);
  }

  /** Asks to be told of the wait of this kernel, or takes that back. */
  toggle(kernelId: string): void {
    if (!this._asked.delete(kernelId) && this._waits.has(kernelId)) {
      this._asked.add(kernelId);
    }
    this._changed.emit(undefined);
  }

  private _look(): void {
    const { model } = this._options;
    // An answer that does not come ends no wait.
    if (model.problem || model.snapshot?.state.scheduler !== 'up') {
      return;
    }
    const { waits, ended } = lookAtWaits(this._waits, model.snapshot);
    this._waits = waits;
    ended.forEach(served => {
      this._ended(served);
    });
    const over = [...this._asked].filter(kernelId => !waits.has(kernelId));
    if (over.length > 0) {
      over.forEach(kernelId => this._asked.delete(kernelId));
      this._changed.emit(undefined);
    }
  }

  private _ended(served: IServed): void {
    const { claims, isHidden, isInView, settings, tell } = this._options;
    const { kernelId } = served.kernel;
    if (!isWorthTelling(served, this._asked.has(kernelId), settings.value)) {
      return;
    }
    if (!isHidden()) {
      // The page that shows the notebook has told it, too.
      if (claims.take(served.wait.key) && !isInView(kernelId)) {
        tell(served);
      }
      return;
    }
    // A page that can be seen goes first.
    const timer = window.setTimeout(() => {
      this._later.delete(timer);
      if (claims.take(served.wait.key)) {
        tell(served);
      }
    }, Notices.HIDDEN_WAITS_MS);
    this._later.add(timer);
  }

  private readonly _changed = new Signal<this, undefined>(this);
  private readonly _asked = new Set<string>();
  private readonly _later = new Set<number>();
  private _waits: WaitsSeen = new Map();
  private _isDisposed = false;
}

export namespace Notices {
  /** For so long a hidden page leaves it to another one. */
  export const HIDDEN_WAITS_MS = 1000;

  export interface IOptions {
    readonly model: PanelModel;
    readonly settings: GPUShareSettings;
    readonly claims: Claims;
    /** Whether nobody sees this page. */
    readonly isHidden: () => boolean;
    /** Whether this page shows the notebook of this kernel. */
    readonly isInView: (kernelId: string) => boolean;
    readonly tell: (served: IServed) => void;
  }
}
