import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import { NotAllowed, NotInstalled, Refused, type IAction, type IStateClient } from './client';
import type { StateFeed } from './feed';
import { parseState, VersionMismatch, type IKernel, type IState } from './state';

/** Why there is no state to show, or why the one shown may be out of date. */
export type Problem =
  | { readonly kind: 'version'; readonly theirs: string }
  | { readonly kind: 'not-installed' }
  | { readonly kind: 'unreachable' }
  | { readonly kind: 'not-allowed' }
  | { readonly kind: 'refused'; readonly message: string }
  | { readonly kind: 'malformed' };

/** A state and the moment at which it was true, so that times in it can go on. */
export interface ISnapshot {
  readonly state: IState;
  readonly receivedAtMs: number;
}

/** All that the panel shows. The panel is a function of this model. */
export class PanelModel implements IDisposable {
  constructor(options: PanelModel.IOptions) {
    this._client = options.client;
    this._feed = options.feed;
    this._clockMs = options.clockMs ?? Date.now;
    this._feed.arrived.connect(this._onArrived, this);
    this._feed.failed.connect(this._onFailed, this);
  }

  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  /** Null until the first answer, and whenever no answer can be trusted. */
  get snapshot(): ISnapshot | null {
    return this._snapshot;
  }

  /** Null while all is well. */
  get problem(): Problem | null {
    return this._problem;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._feed.dispose();
    Signal.clearData(this);
  }

  refresh(): Promise<void> {
    return this._feed.refresh();
  }

  /** What the server is being asked for the kernel; null while it is asked nothing. */
  pendingAction(kernelId: string): IAction | null {
    return this._pending.get(kernelId) ?? null;
  }

  /** Why the last action on the kernel failed; null when it did not, and once that is history. */
  actionProblem(kernelId: string): Problem | null {
    return this._refusals.get(kernelId)?.problem ?? null;
  }

  /**
   * Asks for one thing at a time; what comes of it arrives as a state. Never rejects: why it failed
   * is told by `actionProblem`, and `changed` tells of both.
   */
  async perform(kernelId: string, action: IAction): Promise<void> {
    if (this._isDisposed || this._pending.has(kernelId)) {
      return;
    }
    this._pending.set(kernelId, action);
    this._refusals.delete(kernelId);
    this._changed.emit(undefined);
    try {
      await this._client.perform(kernelId, action);
    } catch (error) {
      const asOf = asOfNow(this._snapshot?.state, kernelId);
      // The row of a kernel that has ended meanwhile is gone, and with it the question.
      if (asOf !== GONE) {
        this._refusals.set(kernelId, { problem: problemOf(error), asOf });
      }
    } finally {
      this._pending.delete(kernelId);
      if (!this.isDisposed) {
        this._changed.emit(undefined);
      }
    }
  }

  /** Asks the kernel's turn back. Never rejects. */
  releaseTurn(kernelId: string): Promise<void> {
    return this.perform(kernelId, { kind: 'release' });
  }

  private _onArrived(_: StateFeed, value: unknown): void {
    try {
      const state = parseState(value);
      this._snapshot = { state, receivedAtMs: this._clockMs() };
      this._problem = null;
      this._forgetRefusals(state);
    } catch (error) {
      this._snapshot = null;
      this._problem =
        error instanceof VersionMismatch
          ? { kind: 'version', theirs: error.theirs }
          : { kind: 'malformed' };
    }
    this._changed.emit(undefined);
  }

  private _onFailed(_: StateFeed, error: unknown): void {
    this._problem = problemOf(error);
    if (this._problem.kind === 'not-installed') {
      this._snapshot = null;
    }
    this._changed.emit(undefined);
  }

  /** A refusal is told until the kernel is in another state, or gone. */
  private _forgetRefusals(state: IState): void {
    for (const [kernelId, { asOf }] of this._refusals) {
      if (asOfNow(state, kernelId) !== asOf) {
        this._refusals.delete(kernelId);
      }
    }
  }

  private readonly _client: IStateClient;
  private readonly _feed: StateFeed;
  private readonly _clockMs: () => number;
  private readonly _changed = new Signal<this, undefined>(this);
  private readonly _pending = new Map<string, IAction>();
  private readonly _refusals = new Map<string, IRefusal>();
  private _snapshot: ISnapshot | null = null;
  private _problem: Problem | null = null;
  private _isDisposed = false;
}

export namespace PanelModel {
  export interface IOptions {
    readonly client: IStateClient;
    /** Disposed with the model. */
    readonly feed: StateFeed;
    readonly clockMs?: () => number;
  }
}

/** Of a kernel that is not there. */
const GONE = 'gone';

/** What was refused, and how the kernel was then. */
interface IRefusal {
  readonly problem: Problem;
  readonly asOf: string;
}

/** Equal as long as an answer to an action still holds good. */
function asOfNow(state: IState | undefined, kernelId: string): string {
  const kernel = state?.kernels.find((each: IKernel) => each.kernelId === kernelId);
  return kernel
    ? JSON.stringify([kernel.state, kernel.holdLeftS > 0, kernel.holdToComeS > 0])
    : GONE;
}

function problemOf(error: unknown): Problem {
  if (error instanceof NotInstalled) {
    return { kind: 'not-installed' };
  }
  if (error instanceof NotAllowed) {
    return { kind: 'not-allowed' };
  }
  if (error instanceof Refused) {
    return { kind: 'refused', message: error.message };
  }
  return { kind: 'unreachable' };
}
