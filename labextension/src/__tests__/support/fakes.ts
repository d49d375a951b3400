import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { PromiseDelegate } from '@lumino/coreutils';

import type { IAction, IStateClient } from '../../client';
import type { IStreamListener } from '../../eventStream';
import { CHANGED_SCHEMA_ID } from '../../tokens';

/** A server whose answers the test gives, one at a time. */
export class FakeClient implements IStateClient {
  readonly questions: PromiseDelegate<unknown>[] = [];
  readonly performed: [string, IAction][] = [];
  actionAnswer: Promise<void> = Promise.resolve();

  fetchState(): Promise<unknown> {
    const answer = new PromiseDelegate<unknown>();
    this.questions.push(answer);
    return answer.promise;
  }

  perform(kernelId: string, action: IAction): Promise<void> {
    this.performed.push([kernelId, action]);
    return this.actionAnswer;
  }

  async answer(question: number, value: unknown): Promise<void> {
    this.questions[question]?.resolve(value);
    await settled();
  }

  async fail(question: number, error: Error): Promise<void> {
    this.questions[question]?.reject(error);
    await settled();
  }
}

/** An event stream that opens, closes and speaks when the test says so. */
export class FakeStream {
  listener: IStreamListener | null = null;
  isDisposed = false;

  readonly open = (listener: IStreamListener): IDisposable => {
    this.listener = listener;
    return new DisposableDelegate(() => {
      this.isDisposed = true;
    });
  };

  /** Tells of a change. */
  tell(): void {
    this.listener?.received({ schema_id: CHANGED_SCHEMA_ID, version: 1 });
  }
}

/** Lets every promise that is already decided take its effect. */
export async function settled(): Promise<void> {
  for (let round = 0; round < 20; round += 1) {
    await Promise.resolve();
  }
}
