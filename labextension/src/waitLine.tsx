import type { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { ReactElement } from 'react';

import { useSecondsSince } from './elapsed';
import { formatGoesOn, formatWaitLine } from './format';
import type { IDevice, IKernel } from './state';

/** What one line says. */
export interface IWaiting {
  readonly kernel: IKernel;
  readonly devices: readonly IDevice[];
  readonly receivedAtMs: number;
}

/** One line of text. It stands beside a cell's outputs and never in them, so nothing saves it. */
export class WaitLine extends ReactWidget {
  constructor(private readonly _trans: TranslationBundle) {
    super();
    this.addClass('jp-gpushare-WaitLine');
    // The panel tells screen readers of the wait; a line that counts must not speak each second.
    this.node.setAttribute('role', 'note');
  }

  /** Null: the cell goes on, and the line stays a moment for the case that it waits again. */
  tell(waiting: IWaiting | null): void {
    this._waiting = waiting;
    this.update();
  }

  protected override render(): ReactElement {
    return this._waiting ? (
      <WaitText {...this._waiting} trans={this._trans} />
    ) : (
      <>{formatGoesOn(this._trans)}</>
    );
  }

  private _waiting: IWaiting | null = null;
}

function WaitText(props: IWaiting & { readonly trans: TranslationBundle }): ReactElement {
  const { devices, kernel, receivedAtMs, trans } = props;
  return <>{formatWaitLine(kernel, devices, useSecondsSince(receivedAtMs), trans)}</>;
}
