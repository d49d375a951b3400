import type { CodeCell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { PanelLayout, Widget } from '@lumino/widgets';

import type { PanelModel } from './model';
import { bytesToRestore, Restores, type IRestore } from './restores';
import type { GPUShareSettings } from './shell/settings';
import { waitedS, type IKernel, type IState } from './state';
import { WaitLine, type ITold } from './waitLine';

/** A cell that is paused and goes on each few moments keeps its line in between. */
export const STAYS_MS = 1500;

/** The lines in one notebook, by where they stand. */
interface IShown {
  readonly lines: ReadonlyMap<Widget, WaitLine>;
  readonly paused: boolean;
  /** When a line whose cell goes on is taken away; null while it waits. */
  readonly untilMs: number | null;
}

/** Keeps a line at each cell that waits for the GPU or for its memory, as the model says. Nothing
 * runs while nothing waits. */
export class WaitLines implements IDisposable {
  constructor(options: WaitLines.IOptions) {
    this._options = options;
    this._clockMs = options.clockMs ?? Date.now;
    options.model.changed.connect(this._look, this);
    options.settings.changed.connect(this._look, this);
    options.tracker.widgetAdded.connect(this._added, this);
    options.tracker.forEach(panel => {
      this._added(null, panel);
    });
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    window.clearTimeout(this._timer);
    for (const panel of [...this._shown.keys()]) {
      this._take(panel);
    }
    Signal.clearData(this);
  }

  private _added(_: unknown, panel: NotebookPanel): void {
    panel.sessionContext.kernelChanged.connect(this._look, this);
    panel.disposed.connect(this._take, this);
    this._look();
  }

  private _look(): void {
    window.clearTimeout(this._timer);
    const { model, settings, tracker } = this._options;
    const isTold = settings.value.showWaitLine && !model.problem;
    const state = isTold ? (model.snapshot?.state ?? null) : null;
    if (this._shown.size === 0 && !state?.kernels.some(isWorthALook)) {
      return;
    }
    const dues: number[] = [];
    tracker.forEach(panel => {
      const due = this._lookAt(panel, state);
      if (due !== null) {
        dues.push(due);
      }
    });
    if (dues.length > 0) {
      const inMs = Math.max(0, Math.min(...dues) - this._clockMs());
      this._timer = window.setTimeout(() => {
        this._look();
      }, inMs);
    }
  }

  /** When to look again although nothing changes; null where that is not needed. */
  private _lookAt(panel: NotebookPanel, state: IState | null): number | null {
    const kernelId = panel.sessionContext.session?.kernel?.id;
    const kernel = state?.kernels.find(each => each.kernelId === kernelId);
    const restore = kernel ? this._restores.look(kernel, this._clockMs()) : null;
    if (state && kernel?.state === 'waits' && !waitsForATrim(kernel)) {
      return this._waits(panel, state, kernel);
    }
    if (kernel && restore) {
      return this._restoring(panel, kernel, restore);
    }
    const shown = this._shown.get(panel);
    if (!shown?.paused || kernel?.state !== 'holds') {
      this._take(panel);
      return null;
    }
    const untilMs = shown.untilMs ?? this._clockMs() + STAYS_MS;
    if (untilMs <= this._clockMs()) {
      this._take(panel);
      return null;
    }
    shown.lines.forEach(line => {
      line.tell(null);
    });
    this._shown.set(panel, { ...shown, untilMs });
    return untilMs;
  }

  private _waits(panel: NotebookPanel, state: IState, kernel: IKernel): number | null {
    const { model, settings } = this._options;
    const receivedAtMs = model.snapshot?.receivedAtMs ?? this._clockMs();
    // A wait that is shorter is not worth a line.
    const { waitLineAfterMs } = settings.value;
    const dueMs = receivedAtMs - 1000 * waitedS(kernel, state.devices) + waitLineAfterMs;
    const paused = (kernel.wait?.usedS ?? 0) > 0;
    return this._show(panel, kernel, dueMs, paused, {
      kind: 'waits',
      kernel,
      devices: state.devices,
      receivedAtMs
    });
  }

  /** Its turn has begun, and the cell goes on when its memory is back. */
  private _restoring(panel: NotebookPanel, kernel: IKernel, restore: IRestore): number | null {
    const dueMs = restore.sinceMs + this._options.settings.value.waitLineAfterMs;
    return this._show(panel, kernel, dueMs, false, { kind: 'restores', restore });
  }

  private _show(
    panel: NotebookPanel,
    kernel: IKernel,
    dueMs: number,
    paused: boolean,
    told: ITold
  ): number | null {
    const before = this._shown.get(panel);
    if (!before && dueMs > this._clockMs()) {
      return dueMs;
    }
    const lines = new Map(
      placesOf(panel, kernel.cells).map(place => [
        place,
        this._lineAt(place, panel, before?.lines.get(place))
      ])
    );
    before?.lines.forEach((line, place) => {
      if (lines.get(place) !== line) {
        line.dispose();
      }
    });
    this._shown.set(panel, { lines, paused, untilMs: null });
    lines.forEach(line => {
      line.tell(told);
    });
    return null;
  }

  /** The one that stands there, if its cell is still shown. */
  private _lineAt(place: Widget, panel: NotebookPanel, before: WaitLine | undefined): WaitLine {
    if (before && !before.isDisposed) {
      return before;
    }
    const line = new WaitLine(this._options.trans);
    put(line, place, panel);
    return line;
  }

  private _take(panel: NotebookPanel): void {
    this._shown.get(panel)?.lines.forEach(line => {
      line.dispose();
    });
    this._shown.delete(panel);
  }

  private readonly _options: WaitLines.IOptions;
  private readonly _clockMs: () => number;
  private readonly _shown = new Map<NotebookPanel, IShown>();
  private readonly _restores = new Restores();
  private _timer: number | undefined;
  private _isDisposed = false;
}

export namespace WaitLines {
  export interface IOptions {
    readonly model: PanelModel;
    readonly settings: GPUShareSettings;
    readonly tracker: Pick<INotebookTracker, 'forEach' | 'widgetAdded'>;
    readonly trans: TranslationBundle;
    readonly clockMs?: () => number;
  }
}

function isWorthALook(kernel: IKernel): boolean {
  return kernel.state === 'waits' || bytesToRestore(kernel) > 0;
}

/** No cell of it runs: it gives back unused memory, which the panel tells. */
function waitsForATrim(kernel: IKernel): boolean {
  return kernel.trim?.stage === 'runs' && kernel.cells.length === 0;
}

/**
 * The cells that sent these messages, or else the notebook: a page that was loaded later knows none
 * of them. Several run at once in a kernel with subshells. Which of them waits nobody can say: all
 * of its GPU calls wait at one gate.
 */
function placesOf(panel: NotebookPanel, messages: readonly string[]): readonly Widget[] {
  const cells: readonly Widget[] = panel.content.widgets.filter(cell => {
    const { outputArea } = cell as Widget & Partial<Pick<CodeCell, 'outputArea'>>;
    const future = outputArea?.future as Kernel.IShellFuture | undefined;
    return future !== undefined && messages.includes(future.msg.header.msg_id);
  });
  return cells.length > 0 ? cells : [panel];
}

/** Between a cell's input and its outputs, or else on top of the notebook. */
function put(line: WaitLine, place: Widget, panel: NotebookPanel): void {
  if (place === panel) {
    line.addClass('jp-mod-notebook');
    panel.contentHeader.addWidget(line);
    return;
  }
  const layout = place.layout as PanelLayout;
  const outputs = layout.widgets.findIndex(each => each.hasClass('jp-Cell-outputWrapper'));
  layout.insertWidget(outputs < 0 ? layout.widgets.length : outputs, line);
}
