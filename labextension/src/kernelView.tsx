import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useLayoutEffect, useRef, type ReactElement } from 'react';

import type { IAction } from './client';
import { Counting, HoldLeft, WaitLeft } from './elapsed';
import {
  formatClass,
  formatHoldToCome,
  formatHoldUntil,
  formatKernel,
  formatKernelState,
  formatProblem,
  formatReason
} from './format';
import { explainKernelMemory, formatKernelMemory, type IKernelShare } from './formatMemory';
import { KernelActions } from './kernelActions';
import type { Problem } from './model';
import type { IKernel, IMemory } from './state';
import { formatTrim } from './trims';

/** One kernel of mine: its state, why, and a way to give its turn back. */
export function KernelView(props: KernelView.IProps): ReactElement {
  const { holdInTheWayS, kernel, problem, receivedAtMs, trans } = props;
  const row = useRef<HTMLLIElement>(null);
  const runsAs = formatClass(kernel, trans);
  const gone = useRef(props.onGone);
  gone.current = props.onGone;
  useLayoutEffect(() => {
    const element = row.current;
    // The row goes with its kernel, and whoever stands in it with the keyboard is led on.
    return () => {
      if (element?.contains(document.activeElement)) {
        gone.current();
      }
    };
  }, []);
  return (
    <li className={`jp-gpushare-Kernel jp-mod-${kernel.state}`} ref={row} tabIndex={-1}>
      <div className="jp-gpushare-KernelHead">
        <KernelName {...props} />
        {(kernel.state === 'holds' || kernel.holdToComeS > 0) && (
          <ReleaseButton
            {...props}
            onGone={() => {
              row.current?.focus();
            }}
          />
        )}
      </div>
      <p className="jp-gpushare-KernelState">
        <span className="jp-gpushare-Badge">{formatKernelState(kernel, trans)}</span>
        {runsAs && <span className="jp-gpushare-Class">{runsAs}</span>}
      </p>
      {kernel.memory.map(memory => (
        <MemoryLine
          key={memory.deviceId}
          memory={memory}
          // With one device there is nothing to tell apart.
          on={kernel.memory.length > 1 ? props.deviceName(memory.deviceId) : ''}
          trans={trans}
        />
      ))}
      {kernel.placement && <p className="jp-gpushare-Reason">{kernel.placement}</p>}
      {kernel.wait && (
        <p className="jp-gpushare-Wait">
          <WaitLeft atMs={receivedAtMs} trans={trans} wait={kernel.wait} />
        </p>
      )}
      {kernel.holdLeftS > 0 && (
        <p className="jp-gpushare-Hold">
          <HoldLeft atMs={receivedAtMs} mine seconds={kernel.holdLeftS} trans={trans} />
        </p>
      )}
      {kernel.holdToComeS > 0 && (
        <p className="jp-gpushare-Hold">{formatHoldToCome(kernel.holdToComeS, trans)}</p>
      )}
      <p className="jp-gpushare-Reason">
        {formatReason(kernel, trans)}
        {holdInTheWayS > 0 && ` ${formatHoldUntil(receivedAtMs + 1000 * holdInTheWayS, trans)}`}
      </p>
      {kernel.trim && (
        <p
          className={
            kernel.trim.stage === 'failed'
              ? 'jp-gpushare-Trim jp-gpushare-Notice jp-mod-problem'
              : 'jp-gpushare-Trim jp-gpushare-Reason'
          }
        >
          {formatTrim(kernel, trans)}
        </p>
      )}
      {kernel.tenantId !== '' && <KernelActions {...props} />}
      {problem && <Refusal problem={problem} trans={trans} />}
    </li>
  );
}

export namespace KernelView {
  export interface IProps {
    readonly kernel: IKernel;
    /** For how much longer a turn that it waits for is kept by hand. */
    readonly holdInTheWayS: number;
    readonly receivedAtMs: number;
    /** What people call the device with this id. */
    readonly deviceName: (deviceId: string) => string;
    /** The actions that the server passes on. */
    readonly actions: readonly string[];
    /** The longest time for which a turn may be kept by hand. */
    readonly holdMaxS: number;
    /** What the server is being asked for it. */
    readonly pending: IAction | null;
    /** Why the last action failed. */
    readonly problem: Problem | null;
    readonly onAct: (kernelId: string, action: IAction) => void;
    readonly onOpen: (path: string) => void;
    /** The kernel has ended while the keyboard was in its row. */
    readonly onGone: () => void;
    readonly trans: TranslationBundle;
  }
}

/** Why the last action failed; it comes into view, for the button stands above it. */
function Refusal(props: {
  readonly problem: Problem;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { problem, trans } = props;
  const place = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    place.current?.scrollIntoView({ block: 'nearest' });
  }, [problem]);
  return (
    <p className="jp-gpushare-Notice jp-mod-problem" ref={place} role="alert">
      {formatProblem(problem, trans)}
    </p>
  );
}

/** It stays with what follows it, so that no line ends with it. */
const SEPARATOR = '·\u00a0';

/** What the kernel has of one device; nothing where it has nothing. */
function MemoryLine(props: {
  readonly memory: IMemory;
  /** The device's name, where there are several. */
  readonly on: string;
  readonly trans: TranslationBundle;
}): ReactElement | null {
  const { memory, on, trans } = props;
  const parts = formatKernelMemory(memory, trans);
  return parts.length > 0 ? (
    <p className="jp-gpushare-KernelMemory" title={explainKernelMemory(trans)}>
      <Counting
        key={parts.map(({ kind }) => kind).join(' ')}
        words={`${on && `${on}: `}${parts.map(unbroken).join(` ${SEPARATOR}`)}`}
      >
        {on && <bdi>{`${on}: `}</bdi>}
        {parts.map((part, index) => (
          <span key={part.kind}>
            {index > 0 && ' '}
            {pieces(part).map((piece, place) => (
              <span key={piece}>
                {place > 0 && ' '}
                <span className="jp-gpushare-Part">
                  {index > 0 && place === 0 && SEPARATOR}
                  {piece}
                </span>
              </span>
            ))}
          </span>
        ))}
      </Counting>
    </p>
  ) : null;
}

/** What of an amount is not broken: all of it, but for the kinds that may stand behind it. */
function pieces(share: IKernelShare): readonly string[] {
  return share.words.replace(/, | (?=\()/g, gap => `${gap.trim()}\n`).split('\n');
}

/** An amount whose spaces are broken between its pieces alone. */
function unbroken(share: IKernelShare): string {
  return pieces(share)
    .map(piece => piece.replace(/ /g, '\u00a0'))
    .join(' ');
}

function KernelName(props: KernelView.IProps): ReactElement {
  const { kernel, onOpen, trans } = props;
  const name = formatKernel(kernel);
  if (!kernel.path) {
    return (
      <bdi className="jp-gpushare-KernelName" title={name}>
        {name}
      </bdi>
    );
  }
  return (
    <button
      className="jp-gpushare-KernelName jp-gpushare-Link"
      onClick={() => {
        onOpen(kernel.path);
      }}
      title={trans.__('Show %1', kernel.path)}
      type="button"
    >
      <bdi>{name}</bdi>
    </button>
  );
}

function ReleaseButton(props: KernelView.IProps & { readonly onGone: () => void }): ReactElement {
  const { kernel, onAct, onGone, pending, trans } = props;
  const name = formatKernel(kernel);
  const holds = kernel.state === 'holds';
  const button = useRef<HTMLButtonElement>(null);
  const gone = useRef(onGone);
  gone.current = onGone;
  // A layout effect ends while the button is still in the page; a plain one would be too late.
  useLayoutEffect(() => {
    const element = button.current;
    // The button goes with the turn. Who stands on it with the keyboard then stays in the row.
    return () => {
      if (element && element === document.activeElement) {
        gone.current();
      }
    };
  }, []);
  return (
    <button
      aria-disabled={pending !== null}
      aria-label={
        holds
          ? trans.__('Release the turn of %1', name)
          : trans.__('Cancel the reservation of %1', name)
      }
      className="jp-gpushare-Release jp-Button jp-mod-styled jp-mod-minimal"
      onClick={() => {
        if (!pending) {
          onAct(kernel.kernelId, { kind: 'release' });
        }
      }}
      ref={button}
      title={
        holds
          ? trans.__(
              'Give the GPU to the next in the queue now. Nothing is lost: the cell goes on at its next turn.'
            )
          : trans.__('Do not keep the GPU between cells at the next turn.')
      }
      type="button"
    >
      {pending?.kind === 'release'
        ? trans.__('Releasing…')
        : holds
          ? trans.__('Release')
          : trans.__('Cancel')}
    </button>
  );
}
