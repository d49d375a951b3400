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

/** What one line says. */
export type ITold = IWaiting | IRestoring;

/** One line of text. It stands beside a cell's outputs and never in them, so nothing saves it. */
export class WaitLine extends ReactWidget {
  constructor(private readonly _trans: TranslationBundle) {
    super();
    this.addClass('jp-gpushare-WaitLine');
    // The panel tells screen readers of the wait; a line that counts must not speak each second.
    this.node.setAttribute('role', 'note');
  }

  /** Null: the cell goes on, and the line stays a moment for the case that it waits again. */
  tell(told: ITold | null): void {
    this._told = told;
    this.update();
  }

  protected override render(): ReactElement {
    switch (this._told?.kind) {
      case 'waits':
        return <WaitText {...this._told} trans={this._trans} />;
      case 'restores':
        return <RestoreText restore={this._told.restore} trans={this._trans} />;
      case undefined:
        return <>{formatGoesOn(this._trans)}</>;
    }
  }

  private _told: ITold | null = null;
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
