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

/** For so long a line says that its cell goes on. It keeps its space until the cell ends. */
export const STAYS_MS = 1500;

/** The lines in one notebook, by where they stand. */
interface IShown {
  readonly lines: ReadonlyMap<Widget, WaitLine>;
  /** Its cell was paused at least once. */
  readonly paused: boolean;
  /** When a line whose cell goes on has said so; null while it waits. */
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
    panel.sessionContext.statusChanged.connect(this._statusChanged, this);
    panel.disposed.connect(this._take, this);
    this._look();
  }

  /** Where no line stands, nothing ends with a cell. */
  private _statusChanged(): void {
    if (this._shown.size > 0) {
      this._look();
    }
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
    if (!shown?.paused || !kernel) {
      this._take(panel);
      return null;
    }
    return this._goesOn(panel, shown);
  }

  /** The lines of cells that have ended go, and the others keep their space. */
  private _goesOn(panel: NotebookPanel, shown: IShown): number | null {
    const lines = new Map(
      [...shown.lines].filter(([place, line]) => {
        const runs = !line.isDisposed && (place === panel ? isBusy(panel) : this._runs(place));
        if (!runs) {
          line.dispose();
        }
        return runs;
      })
    );
    if (lines.size === 0) {
      this._shown.delete(panel);
      return null;
    }
    const untilMs = shown.untilMs ?? this._clockMs() + STAYS_MS;
    const saysSo = untilMs > this._clockMs();
    lines.forEach(line => {
      line.tell({ kind: saysSo ? 'continues' : 'rests' });
    });
    this._shown.set(panel, { ...shown, lines, untilMs });
    return saysSo ? untilMs : null;
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
    const lasting = [...lines.values()];
    const former = [...(before?.lines.values() ?? [])];
    const wasPaused = before?.paused === true && former.some(line => lasting.includes(line));
    for (const line of former.filter(line => !lasting.includes(line))) {
      line.dispose();
    }
    this._shown.set(panel, { lines, paused: paused || wasPaused, untilMs: null });
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

  /** Whether a cell runs. Its end is another reason to look. */
  private _runs(cell: Widget): boolean {
    const future = futureOf(cell);
    if (!future) {
      return false;
    }
    const runs = this._running.get(future);
    if (runs === undefined) {
      this._running.set(future, true);
      const end = (): void => {
        this._running.set(future, false);
        this._statusChanged();
      };
      future.done.then(end, end);
    }
    return runs ?? true;
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
  /** Whether the cell of a request runs, of those whose end is waited for. */
  private readonly _running = new WeakMap<Kernel.IShellFuture, boolean>();
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
    const future = futureOf(cell);
    return future !== undefined && messages.includes(future.msg.header.msg_id);
  });
  return cells.length > 0 ? cells : [panel];
}

/** The request by which a cell was run last; undefined where this page has not run it. */
function futureOf(cell: Widget): Kernel.IShellFuture | undefined {
  const { outputArea } = cell as Widget & Partial<Pick<CodeCell, 'outputArea'>>;
  return outputArea?.future as Kernel.IShellFuture | undefined;
}

function isBusy(panel: NotebookPanel): boolean {
  return panel.sessionContext.session?.kernel?.status === 'busy';
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
