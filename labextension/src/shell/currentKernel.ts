import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal, type ISignal } from '@lumino/signaling';

/** The id of the kernel of a notebook; undefined while it has none. */
export function kernelIdOf(panel: NotebookPanel | null | undefined): string | undefined {
  return panel?.sessionContext.session?.kernel?.id;
}

/** Follows which kernel the notebook in front has. */
export class CurrentKernel {
  constructor(private readonly _tracker: INotebookTracker | null) {
    _tracker?.currentChanged.connect(this._follow, this);
    this._follow();
  }

  /** Another kernel may be the current one. */
  get changed(): ISignal<this, undefined> {
    return this._changed;
  }

  get id(): string | undefined {
    return kernelIdOf(this._tracker?.currentWidget);
  }

  /** The notebook in front. */
  get panel(): NotebookPanel | null {
    return this._tracker?.currentWidget ?? null;
  }

  private _follow(): void {
    const panel = this._tracker?.currentWidget ?? null;
    if (panel !== this._followed) {
      this._followed?.sessionContext.kernelChanged.disconnect(this._tell, this);
      panel?.sessionContext.kernelChanged.connect(this._tell, this);
      this._followed = panel;
    }
    this._tell();
  }

  private _tell(): void {
    this._changed.emit(undefined);
  }

  private readonly _changed = new Signal<this, undefined>(this);
  private _followed: NotebookPanel | null = null;
}
