import type { TranslationBundle } from '@jupyterlab/translation';
import { useRef, useState, type ReactElement } from 'react';

import type { IAction } from './client';
import { formatBytes, formatDuration, formatKernel } from './format';
import type { IKernel } from './state';
import { isTrimming } from './trims';

/** What its user can do to a kernel besides the release, folded away until it is wanted. */
export function KernelActions(props: KernelActions.IProps): ReactElement | null {
  const { actions, holdMaxS, kernel, onAct, pending, trans } = props;
  const keeps = kernel.holdLeftS > 0 || kernel.holdToComeS > 0;
  const lengths = actions.includes('hold') ? holdLengths(holdMaxS) : [];
  const canEvict = actions.includes('evict') && bytesOnDevices(kernel) > 0;
  const canTrim = actions.includes('trim') && hasAllocated(kernel);
  if (lengths.length === 0 && !keeps && !canEvict && !canTrim) {
    return null;
  }
  const act = (action: IAction): void => {
    if (!pending) {
      onAct(kernel.kernelId, action);
    }
  };
  return (
    <details className="jp-gpushare-Actions">
      <summary aria-label={trans.__('Actions for %1', formatKernel(kernel))}>
        {trans.__('Actions')}
      </summary>
      {lengths.length > 0 && (
        <div
          aria-label={trans.__('Keep the GPU between cells for')}
          className="jp-gpushare-ActionRow"
          role="group"
        >
          <span aria-hidden="true">{trans.__('Keep the GPU for')}</span>
          {lengths.map(seconds => (
            <ActionButton
              disabled={pending !== null}
              key={seconds}
              onClick={() => {
                act({ kind: 'hold', seconds });
              }}
              title={trans.__(
                'It keeps the GPU between cells for so long, from its next turn on if it has none now. Others wait meanwhile.'
              )}
            >
              {formatDuration(seconds, trans)}
            </ActionButton>
          ))}
        </div>
      )}
      {keeps && actions.includes('hold') && (
        <div className="jp-gpushare-ActionRow">
          <ActionButton
            disabled={pending !== null}
            onClick={() => {
              act({ kind: 'hold', seconds: 0 });
            }}
            title={trans.__('Its turn goes on, and ends with its cell again.')}
          >
            {trans.__('End keeping')}
          </ActionButton>
        </div>
      )}
      {canTrim && (
        <div className="jp-gpushare-ActionRow">
          <ActionButton
            disabled={pending !== null || isTrimming(kernel)}
            onClick={() => {
              if (!isTrimming(kernel)) {
                act({ kind: 'trim' });
              }
            }}
            title={explainTrim(trans)}
          >
            {trans.__('Give back unused GPU memory')}
          </ActionButton>
        </div>
      )}
      {canEvict && (
        <Evict
          disabled={pending !== null}
          kernel={kernel}
          onEvict={() => {
            act({ kind: 'evict' });
          }}
          trans={trans}
        />
      )}
    </details>
  );
}

export namespace KernelActions {
  export interface IProps {
    readonly kernel: IKernel;
    readonly actions: readonly string[];
    readonly holdMaxS: number;
    readonly pending: IAction | null;
    readonly onAct: (kernelId: string, action: IAction) => void;
    readonly trans: TranslationBundle;
  }
}

/** Asks once more before it does anything. */
function Evict(props: {
  readonly disabled: boolean;
  readonly kernel: IKernel;
  readonly onEvict: () => void;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { disabled, kernel, onEvict, trans } = props;
  const [asks, setAsks] = useState(false);
  const first = useRef<HTMLDivElement>(null);
  const close = (): void => {
    setAsks(false);
    first.current?.focus();
  };
  return (
    <div className="jp-gpushare-ActionRow" ref={first} tabIndex={-1}>
      {asks ? (
        <div aria-label={trans.__('Free its GPU memory?')} role="group">
          <p className="jp-gpushare-Reason">{explainEvict(kernel, trans)}</p>
          <ActionButton
            autoFocus
            disabled={disabled}
            onClick={() => {
              close();
              onEvict();
            }}
          >
            {trans.__('Free it now')}
          </ActionButton>{' '}
          <ActionButton disabled={false} onClick={close}>
            {trans.__('Cancel')}
          </ActionButton>
        </div>
      ) : (
        <ActionButton
          disabled={disabled}
          onClick={() => {
            setAsks(true);
          }}
        >
          {trans.__('Free its GPU memory…')}
        </ActionButton>
      )}
    </div>
  );
}

function ActionButton(props: {
  readonly autoFocus?: boolean;
  readonly children: string;
  readonly disabled: boolean;
  readonly onClick: () => void;
  readonly title?: string;
}): ReactElement {
  return (
    <button
      aria-disabled={props.disabled}
      autoFocus={props.autoFocus}
      className="jp-gpushare-Action jp-Button jp-mod-styled jp-mod-minimal"
      onClick={props.onClick}
      title={props.title}
      type="button"
    >
      {props.children}
    </button>
  );
}

/** Some lengths to choose from, up to the longest that is allowed. */
export function holdLengths(maxS: number): readonly number[] {
  if (maxS <= 0) {
    return [];
  }
  const shorter = [60, 300, 900, 3600].filter(length => length < maxS);
  return [...shorter.slice(-3), maxS];
}

/** What an eviction does, and what it leaves. */
export function explainEvict(kernel: IKernel, trans: TranslationBundle): string {
  const fixed = kernel.memory.reduce((sum, each) => sum + each.bytesFixed, 0);
  const moves = formatBytes(Math.max(0, bytesOnDevices(kernel) - fixed));
  const sentences = [
    trans.__(
      'Its turn ends, and %1 move from the GPU to the machine’s own memory. Nothing is lost: all of it comes back with its next turn.',
      moves
    ),
    ...(fixed > 0
      ? [trans.__('%1 cannot move, and stay until the kernel ends.', formatBytes(fixed))]
      : []),
    ...(kernel.state === 'holds'
      ? [trans.__('A cell that runs is paused, and goes on when the queue comes to it.')]
      : [])
  ];
  return sentences.join(' ');
}

/** What a trim does, and what it leaves. */
export function explainTrim(trans: TranslationBundle): string {
  return trans.__(
    'PyTorch and CuPy keep GPU memory that your program has freed. They give it back after the cell that runs, or at the next turn. Variables keep their values.'
  );
}

/** It has memory, on a device or parked, of which some may be unused. */
export function hasAllocated(kernel: IKernel): boolean {
  return kernel.memory.some(each => each.bytesResident + each.bytesParked > 0);
}

function bytesOnDevices(kernel: IKernel): number {
  return kernel.memory.reduce((sum, each) => sum + each.bytesResident, 0);
}
