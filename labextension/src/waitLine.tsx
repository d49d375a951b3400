import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { ReactElement } from 'react';

import { Counting, useSecondsSince } from './elapsed';
import { formatGoesOn, formatRestore, formatWaitLine } from './format';
import type { IRestore } from './restores';
import type { IDevice, IKernel } from './state';

/** A cell that waits for its turn. */
export interface IWaiting {
  readonly kind: 'waits';
  readonly kernel: IKernel;
  readonly devices: readonly IDevice[];
  readonly receivedAtMs: number;
}

/** A cell that waits for its memory. */
export interface IRestoring {
  readonly kind: 'restores';
  readonly restore: IRestore;
}

/** A paused cell goes on: the line says so for a moment, and then keeps its space without a word. */
export interface IRunning {
  readonly kind: 'continues' | 'rests';
}

/** What one line says. */
export type ITold = IWaiting | IRestoring | IRunning;

/** One line of text. It stands beside a cell's outputs and never in them, so nothing saves it. */
export class WaitLine extends ReactWidget {
  constructor(private readonly _trans: TranslationBundle) {
    super();
    this.addClass('jp-gpushare-WaitLine');
    // The panel tells screen readers of the wait; a line that counts must not speak each second.
    this.node.setAttribute('role', 'note');
  }

  tell(told: ITold): void {
    if (told.kind === 'continues' && this._told.kind !== 'continues') {
      // Fewer words take no less space, or all below would move.
      this.node.style.minHeight = `${this.node.getBoundingClientRect().height}px`;
    }
    this.toggleClass('jp-mod-rests', told.kind === 'rests');
    this._told = told;
    this.update();
  }

  protected override render(): ReactElement {
    switch (this._told.kind) {
      case 'waits':
        return <WaitText {...this._told} trans={this._trans} />;
      case 'restores':
        return <RestoreText restore={this._told.restore} trans={this._trans} />;
      case 'continues':
      case 'rests':
        return <>{formatGoesOn(this._trans)}</>;
    }
  }

  private _told: ITold = { kind: 'rests' };
}

function RestoreText(props: {
  readonly restore: IRestore;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { restore, trans } = props;
  return (
    <>
      {formatRestore(restore, trans)}{' '}
      <progress aria-hidden="true" max={restore.bytesTotal} value={restore.bytesBack} />
    </>
  );
}

function WaitText(props: IWaiting & { readonly trans: TranslationBundle }): ReactElement {
  const { devices, kernel, receivedAtMs, trans } = props;
  const since = useSecondsSince(receivedAtMs);
  return <Counting words={formatWaitLine(kernel, devices, since, trans)} />;
}
