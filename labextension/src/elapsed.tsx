import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useState, type ReactElement } from 'react';

import { formatDuration, formatHold, formatTurnLeft, formatWait } from './format';
import type { IWait } from './state';

/** A duration that goes on, without anything being asked for: `seconds` was true at `atMs`. */
export function Elapsed(props: Elapsed.IProps): ReactElement {
  const { seconds, trans } = props;
  const since = useSecondsSince(props.atMs);
  return <span className="jp-gpushare-Elapsed">{formatDuration(seconds + since, trans)}</span>;
}

/** For how much longer a turn is kept by hand, which gets less by itself. */
export function HoldLeft(props: Elapsed.IProps): ReactElement {
  const { seconds, trans } = props;
  const since = useSecondsSince(props.atMs);
  return <>{formatHold(seconds - since, trans)}</>;
}

/** What is left of a turn, which gets less by itself. */
export function TurnLeft(props: Elapsed.IProps): ReactElement | null {
  const text = formatTurnLeft(props.seconds - useSecondsSince(props.atMs), props.trans);
  return text ? <p className="jp-gpushare-Hold jp-mod-holder">{text}</p> : null;
}

/** When a cell starts or goes on, which comes nearer by itself. */
export function WaitLeft(props: {
  readonly wait: IWait;
  readonly atMs: number;
  readonly trans: TranslationBundle;
}): ReactElement {
  return <>{formatWait(props.wait, useSecondsSince(props.atMs), props.trans)}</>;
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
