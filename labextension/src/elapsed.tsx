import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useState, type ReactElement } from 'react';

import { formatDuration } from './format';

/** A duration that goes on, without anything being asked for: `seconds` was true at `atMs`. */
export function Elapsed(props: Elapsed.IProps): ReactElement {
  const { atMs, seconds, trans } = props;
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
  const since = Math.max(0, (nowMs - atMs) / 1000);
  return <span className="jp-gpushare-Elapsed">{formatDuration(seconds + since, trans)}</span>;
}

export namespace Elapsed {
  export interface IProps {
    readonly seconds: number;
    readonly atMs: number;
    readonly trans: TranslationBundle;
  }
}
