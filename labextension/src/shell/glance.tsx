import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReactElement } from 'react';

import { Counting, useSecondsSince } from '../elapsed';
import type { ISnapshot, Problem } from '../model';
import { glanceAt, isCounting, kernelAtAGlance } from './words';

/** A few words on the GPU, and a way to the panel. It counts only while something holds or waits. */
export function Glance(props: Glance.IProps): ReactElement | null {
  const { kernelId, problem, snapshot } = props;
  const kernel = snapshot ? kernelAtAGlance(snapshot.state.kernels, kernelId) : undefined;
  return snapshot && !problem && isCounting(kernel) ? (
    <WordsInTime {...props} atMs={snapshot.receivedAtMs} />
  ) : (
    <Words {...props} sinceS={0} />
  );
}

export namespace Glance {
  export interface IProps {
    /** The kernel that it is about; undefined: the one of mine that matters most. */
    readonly kernelId: string | undefined;
    readonly snapshot: ISnapshot | null;
    readonly problem: Problem | null;
    readonly onOpen: () => void;
    readonly trans: TranslationBundle;
  }
}

function WordsInTime(props: Glance.IProps & { readonly atMs: number }): ReactElement {
  return <Words {...props} sinceS={useSecondsSince(props.atMs)} />;
}

function Words(props: Glance.IProps & { readonly sinceS: number }): ReactElement | null {
  const { kernelId, onOpen, problem, sinceS, snapshot, trans } = props;
  const glance = glanceAt(snapshot, problem, kernelId, sinceS, trans);
  return glance ? (
    <button
      aria-label={glance.label}
      className={`jp-gpushare-Glance jp-mod-${glance.kind}`}
      onClick={onOpen}
      title={glance.label}
      type="button"
    >
      {glance.kind !== 'none' && (
        <>
          {trans.__('GPU')} <span className="jp-gpushare-Sign" />
        </>
      )}
      <Counting key={glance.kind} words={glance.text} />
    </button>
  ) : null;
}
