import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useRef, useState, type ReactElement } from 'react';

import { formatKernel, formatKernelState, formatProblem } from './format';
import type { Problem } from './model';
import type { IKernel } from './state';

/** Tells screen readers what changed for my own kernels, politely; others' turns are no news. */
export function Announcer(props: Announcer.IProps): ReactElement {
  const { kernels, problem, trans } = props;
  const told = useRef<ReadonlyMap<string, string> | null>(null);
  const [news, setNews] = useState('');
  useEffect(() => {
    const now = new Map(
      kernels.map(kernel => [
        kernel.kernelId,
        `${formatKernel(kernel)}: ${formatKernelState(kernel, trans)}`
      ])
    );
    const before = told.current;
    told.current = now;
    // What stands there when the panel opens is read from the panel itself.
    const changed = before
      ? [...now].filter(([kernelId, text]) => before.get(kernelId) !== text)
      : [];
    const ended = [...(before?.keys() ?? [])].filter(kernelId => !now.has(kernelId));
    const news = [
      ...changed.map(([, text]) => text),
      ...(ended.length > 0
        ? [trans._n('A kernel has ended', '%1 kernels have ended', ended.length)]
        : [])
    ];
    if (news.length > 0) {
      setNews(news.join('. '));
    }
  }, [kernels, trans]);
  return (
    <p className="jp-gpushare-VisuallyHidden" role="status">
      {problem ? formatProblem(problem, trans) : news}
    </p>
  );
}

export namespace Announcer {
  export interface IProps {
    readonly kernels: readonly IKernel[];
    readonly problem: Problem | null;
    readonly trans: TranslationBundle;
  }
}
