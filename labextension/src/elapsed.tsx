import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useRef, useState, type ReactElement, type ReactNode } from 'react';

import { formatDuration, formatHold, formatTurnLeft, formatWait } from './format';
import type { IWait } from './state';

/**
 * Words whose figures change. They keep the room of the longest that they have been, so that nothing
 * beside or below them moves under a mouse while they count.
 */
export function Counting(props: {
  readonly words: string;
  /** What is shown where the words have elements in them. */
  readonly children?: ReactNode;
}): ReactElement {
  const { children, words } = props;
  const longest = useRef('');
  // Figures of one digit soon have two.
  const room = words.replace(/\d+(\.\d+)?/g, figure => figure.padStart(2, '0'));
  if (room.length > longest.current.length) {
    longest.current = room;
  }
  return (
    <span className="jp-gpushare-Counting" data-longest={longest.current}>
      <span>{children ?? words}</span>
    </span>
  );
}

/** A duration that goes on, without anything being asked for: `seconds` was true at `atMs`. */
export function Elapsed(props: Elapsed.IProps): ReactElement {
  const { seconds, trans } = props;
  const since = useSecondsSince(props.atMs);
  return <span className="jp-gpushare-Elapsed">{formatDuration(seconds + since, trans)}</span>;
}

/** For how much longer a turn is kept by hand, which gets less by itself. */
export function HoldLeft(props: Elapsed.IProps & { readonly mine: boolean }): ReactElement {
  const { mine, seconds, trans } = props;
  const since = useSecondsSince(props.atMs);
  return <Counting words={formatHold(seconds - since, mine, trans)} />;
}

/** What is left of a turn, which gets less by itself; its line stays once nothing is left. */
export function TurnLeft(props: Elapsed.IProps): ReactElement {
  const { seconds, trans } = props;
  const since = useSecondsSince(props.atMs);
  return <Counting words={formatTurnLeft(seconds - since, trans)} />;
}

/** When a cell starts or goes on, which comes nearer by itself. */
export function WaitLeft(props: {
  readonly wait: IWait;
  readonly atMs: number;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { atMs, trans, wait } = props;
  const since = useSecondsSince(atMs);
  // A cell that is paused says more than one that has not begun.
  const kind = wait.usedS > 0 ? 'paused' : 'begins';
  return <Counting key={kind} words={formatWait(wait, since, trans)} />;
}

export namespace Elapsed {
  export interface IProps {
    readonly seconds: number;
    readonly atMs: number;
    readonly trans: TranslationBundle;
  }
}

/** Looks at the clock each second. */
export function useSecondsSince(atMs: number): number {
  const [nowMs, setNowMs] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => {
      setNowMs(Date.now());
    }, 1000);
    return () => {
      window.clearInterval(timer);
    };
  }, []);
  // A clock that was set back must not make the time run backwards.
  return Math.max(0, (nowMs - atMs) / 1000);
}
