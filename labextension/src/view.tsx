/** The panel as functions of plain values, which fetch nothing. */

import type { TranslationBundle } from '@jupyterlab/translation';
import { useRef, type ReactElement } from 'react';

import { Announcer } from './announcer';
import type { IAction } from './client';
import { DeviceView } from './deviceView';
import { formatDeviceId, formatNoGpu, formatProblem } from './format';
import { KernelView } from './kernelView';
import type { ISnapshot, Problem } from './model';
import { bytesOfMine, holdInTheWayS, type IDevice, type IState } from './state';

export interface IPanelProps {
  readonly snapshot: ISnapshot | null;
  readonly problem: Problem | null;
  readonly pendingAction: (kernelId: string) => IAction | null;
  readonly actionProblem: (kernelId: string) => Problem | null;
  readonly onAct: (kernelId: string, action: IAction) => void;
  readonly onOpen: (path: string) => void;
  /** Asks the server once more. */
  readonly onRetry: () => void;
  readonly trans: TranslationBundle;
}

export function PanelView(props: IPanelProps): ReactElement {
  const { problem, snapshot, trans } = props;
  return (
    <>
      {problem && (
        <p
          className={
            problem.kind === 'not-installed'
              ? 'jp-gpushare-Notice jp-mod-off'
              : 'jp-gpushare-Notice jp-mod-problem'
          }
        >
          {formatProblem(problem, trans)}{' '}
          {problem.kind === 'unreachable' && <Retry onRetry={props.onRetry} trans={trans} />}
        </p>
      )}
      {snapshot?.state.scheduler === 'off' && (
        <p className="jp-gpushare-Notice jp-mod-off">
          {snapshot.state.message || trans.__('GPU sharing is switched off.')}{' '}
          {trans.__('Notebooks use the GPU like any other program.')}
        </p>
      )}
      {snapshot && snapshot.state.scheduler !== 'off' && (
        <>
          <SchedulerNotice onRetry={props.onRetry} state={snapshot.state} trans={trans} />
          <DevicesSection snapshot={snapshot} trans={trans} />
          <KernelsSection {...props} snapshot={snapshot} />
        </>
      )}
      {!snapshot && !problem && (
        <p className="jp-gpushare-Empty">{trans.__('Asking the server…')}</p>
      )}
      <Announcer kernels={snapshot?.state.kernels ?? []} problem={problem} trans={trans} />
    </>
  );
}

/** Nothing, while the scheduler does its work. */
function SchedulerNotice(props: {
  readonly onRetry: () => void;
  readonly state: IState;
  readonly trans: TranslationBundle;
}): ReactElement | null {
  const { onRetry, state, trans } = props;
  if (state.scheduler === 'up') {
    return state.message ? <p className="jp-gpushare-Notice">{state.message}</p> : null;
  }
  if (state.scheduler === 'starting') {
    const message = state.message || trans.__('The scheduler is starting: GPU cells wait for it.');
    return <p className="jp-gpushare-Notice">{message}</p>;
  }
  const doctor = trans.__('“jupyter gpushare doctor” in a terminal says what is wrong.');
  const message = state.message || trans.__('The scheduler is down.');
  return (
    <p className="jp-gpushare-Notice jp-mod-problem">
      {message.includes('doctor') ? message : `${message} ${doctor}`}{' '}
      <Retry onRetry={onRetry} trans={trans} />
    </p>
  );
}

function Retry(props: {
  readonly onRetry: () => void;
  readonly trans: TranslationBundle;
}): ReactElement {
  return (
    <button
      className="jp-gpushare-Action jp-Button jp-mod-styled jp-mod-minimal"
      onClick={props.onRetry}
      type="button"
    >
      {props.trans.__('Try again')}
    </button>
  );
}

function DevicesSection(props: {
  readonly snapshot: ISnapshot;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { snapshot, trans } = props;
  const { devices, kernels, scheduler } = snapshot.state;
  return (
    <section aria-labelledby="jp-gpushare-devices">
      <h2 className="jp-gpushare-Heading" id="jp-gpushare-devices">
        {trans.__('GPUs')}
      </h2>
      {devices.map(device => (
        <DeviceView
          bytesMine={bytesOfMine(device, kernels)}
          device={device}
          hasTwin={hasTwin(device, devices)}
          key={device.id}
          receivedAtMs={snapshot.receivedAtMs}
          trans={trans}
        />
      ))}
      {devices.length === 0 && (
        <p className="jp-gpushare-Empty">
          {scheduler === 'up'
            ? formatNoGpu(snapshot.state, trans)
            : trans.__('The panel cannot show the GPUs without the scheduler.')}
        </p>
      )}
    </section>
  );
}

function KernelsSection(props: IPanelProps & { readonly snapshot: ISnapshot }): ReactElement {
  const { snapshot, trans } = props;
  const { devices, kernels } = snapshot.state;
  const heading = useRef<HTMLHeadingElement>(null);
  return (
    <section aria-labelledby="jp-gpushare-kernels">
      <h2 className="jp-gpushare-Heading" id="jp-gpushare-kernels" ref={heading} tabIndex={-1}>
        {trans.__('My notebooks')}
      </h2>
      {kernels.length > 0 ? (
        <ul className="jp-gpushare-Kernels">
          {kernels.map(kernel => (
            <KernelView
              deviceName={deviceId => nameOf(deviceId, devices)}
              holdInTheWayS={holdInTheWayS(kernel, devices)}
              actions={snapshot.state.actions}
              holdMaxS={snapshot.state.holdMaxS}
              kernel={kernel}
              key={kernel.kernelId}
              onOpen={props.onOpen}
              onAct={props.onAct}
              onGone={() => {
                heading.current?.focus();
              }}
              pending={props.pendingAction(kernel.kernelId)}
              problem={props.actionProblem(kernel.kernelId)}
              receivedAtMs={snapshot.receivedAtMs}
              trans={trans}
            />
          ))}
        </ul>
      ) : (
        <p className="jp-gpushare-Empty">
          {trans.__('No notebook runs on this server. Each one that you start appears here.')}
        </p>
      )}
    </section>
  );
}

/** Whether another device has the same name. */
function hasTwin(device: IDevice, devices: readonly IDevice[]): boolean {
  return devices.some(other => other !== device && other.name === device.name);
}

function nameOf(deviceId: string, devices: readonly IDevice[]): string {
  const device = devices.find(each => each.id === deviceId);
  if (!device) {
    return deviceId.slice(0, 8);
  }
  return hasTwin(device, devices) ? formatDeviceId(device) : device.name;
}
