import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import { NotInstalled, Refused, type IStateClient } from './client';
import type { StateFeed } from './feed';
import { parseState, VersionMismatch, type IState } from './state';

/** Why there is no state to show, or why the one shown may be out of date. */
export type Problem =
  | { readonly kind: 'version'; readonly theirs: string }
  | { readonly kind: 'not-installed' }
  | { readonly kind: 'unreachable' }
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

  /** Whether the server is being asked to release the kernel's turn. */
  isReleasing(kernelId: string): boolean {
    return this._releasing.has(kernelId);
  }

  /** Why the last release of the kernel's turn failed; null when it did not. */
  releaseProblem(kernelId: string): Problem | null {
    return this._releaseProblems.get(kernelId) ?? null;
  }

  /** Asks the kernel's turn back; what comes of it arrives as a state. Never rejects. */
  async releaseTurn(kernelId: string): Promise<void> {
    if (this._isDisposed || this._releasing.has(kernelId)) {
      return;
    }
    this._releasing.add(kernelId);
    this._releaseProblems.delete(kernelId);
    this._changed.emit(undefined);
    try {
      await this._client.releaseTurn(kernelId);
    } catch (error) {
      this._releaseProblems.set(kernelId, problemOf(error));
    } finally {
      this._releasing.delete(kernelId);
      if (!this.isDisposed) {
        this._changed.emit(undefined);
      }
    }
  }

  private _onArrived(_: StateFeed, value: unknown): void {
    try {
      const state = parseState(value);
      this._snapshot = { state, receivedAtMs: this._clockMs() };
      this._problem = null;
      this._forgetReleases(state);
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

  /** A refusal is told until the kernel has nothing to release any more, or is gone. */
  private _forgetReleases(state: IState): void {
    const holding = new Set(
      state.kernels
        .filter(kernel => kernel.state === 'holds' || kernel.holdToComeS > 0)
        .map(kernel => kernel.kernelId)
    );
    for (const kernelId of this._releaseProblems.keys()) {
      if (!holding.has(kernelId)) {
        this._releaseProblems.delete(kernelId);
      }
    }
  }

  private readonly _client: IStateClient;
  private readonly _feed: StateFeed;
  private readonly _clockMs: () => number;
  private readonly _changed = new Signal<this, undefined>(this);
  private readonly _releasing = new Set<string>();
  private readonly _releaseProblems = new Map<string, Problem>();
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

function problemOf(error: unknown): Problem {
  if (error instanceof NotInstalled) {
    return { kind: 'not-installed' };
  }
  if (error instanceof Refused) {
    return { kind: 'refused', message: error.message };
  }
  return { kind: 'unreachable' };
}
