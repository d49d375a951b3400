import type { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useRef, useState, type ReactElement } from 'react';

import { formatKernel, formatKernelState, formatProblem } from './format';
import type { Problem } from './model';
import type { IKernel } from './state';
import { formatTrim } from './trims';

/** Tells screen readers what changed for my own kernels, politely; others' turns are no news. */
export function Announcer(props: Announcer.IProps): ReactElement {
  const { kernels, problem, trans } = props;
  const told = useRef<ReadonlyMap<string, string> | null>(null);
  const toldOfTrims = useRef<ReadonlyMap<string, string>>(new Map());
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
    const trims = new Map(kernels.map(kernel => [kernel.kernelId, trimOf(kernel, trans)] as const));
    const trimmed = [...trims].filter(
      ([kernelId, text]) => before && text && toldOfTrims.current.get(kernelId) !== text
    );
    toldOfTrims.current = trims;
    const ended = [...(before?.keys() ?? [])].filter(kernelId => !now.has(kernelId));
    const news = [
      ...changed.map(([, text]) => text),
      ...trimmed.map(([, text]) => text),
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

/** Empty where nothing was asked. */
function trimOf(kernel: IKernel, trans: TranslationBundle): string {
  return kernel.trim ? `${formatKernel(kernel)}: ${formatTrim(kernel, trans)}` : '';
}

export namespace Announcer {
  export interface IProps {
    readonly kernels: readonly IKernel[];
    readonly problem: Problem | null;
    readonly trans: TranslationBundle;
  }
}
