import type { TranslationBundle } from '@jupyterlab/translation';
import { useId, type ReactElement } from 'react';

import { Elapsed, HoldLeft, TurnLeft, WaitLeft } from './elapsed';
import {
  formatBytes,
  formatClass,
  formatDeviceId,
  formatMode,
  formatOwner,
  formatTenant
} from './format';
import { MemoryBar } from './memoryBar';
import type { IDevice, IHolder, ITenant, IWaiter } from './state';
import { TimelineView } from './timelineView';

/** One device: its memory, who has it, and who waits, in order. */
export function DeviceView(props: DeviceView.IProps): ReactElement {
  const { bytesMine, device, hasTwin, receivedAtMs, trans } = props;
  const nameId = useId();
  return (
    <article aria-labelledby={nameId} className="jp-gpushare-Device">
      <h3 className="jp-gpushare-DeviceName" id={nameId} title={device.id}>
        {device.name}
        {hasTwin && <span className="jp-gpushare-DeviceId">{formatDeviceId(device)}</span>}
      </h3>
      {device.lost ? (
        <p className="jp-gpushare-Notice jp-mod-problem">
          {trans.__(
            'The driver no longer answers for this GPU: restart the kernels that used it, and tell your administrator.'
          )}
        </p>
      ) : (
        <MemoryBar bytesMine={bytesMine} device={device} trans={trans} />
      )}
      {device.simulated && (
        <p className="jp-gpushare-Reason">
          {trans.__(
            'This GPU is simulated: notebooks take turns on it as on a real one, but it computes next to nothing.'
          )}
        </p>
      )}
      {usedFromOutside(device) && (
        <p className="jp-gpushare-Notice">
          {trans.__(
            'Programs outside the sharing use %1 of this GPU. They wait for nobody: ask who runs them, or an administrator.',
            formatBytes(bytesFromOutside(device))
          )}
        </p>
      )}
      {device.mode !== 'open' && (
        <p className="jp-gpushare-Notice jp-gpushare-Mode">{formatMode(device, trans)}</p>
      )}
      <HolderView
        anyoneWaits={device.queue.length > 0}
        holder={device.holder}
        receivedAtMs={receivedAtMs}
        trans={trans}
      />
      {device.queue.length > 0 && (
        <ol aria-label={trans.__('Queue, in order')} className="jp-gpushare-Queue">
          {device.queue.map(waiter => (
            <WaiterView
              key={waiter.tenantId || waiter.position}
              receivedAtMs={receivedAtMs}
              trans={trans}
              waiter={waiter}
            />
          ))}
        </ol>
      )}
      <TimelineView device={device} trans={trans} />
    </article>
  );
}

export namespace DeviceView {
  export interface IProps {
    readonly device: IDevice;
    /** What my kernels have on it. */
    readonly bytesMine: number;
    /** Another device has the same name. */
    readonly hasTwin: boolean;
    readonly receivedAtMs: number;
    readonly trans: TranslationBundle;
  }
}

function HolderView(props: {
  readonly holder: IHolder | null;
  readonly anyoneWaits: boolean;
  readonly receivedAtMs: number;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { anyoneWaits, holder, receivedAtMs, trans } = props;
  if (!holder) {
    return (
      <p className="jp-gpushare-Holder jp-mod-free">
        {anyoneWaits ? trans.__('Changing hands…') : trans.__('Free')}
      </p>
    );
  }
  return (
    <>
      <p className={holder.mine ? 'jp-gpushare-Holder jp-mod-mine' : 'jp-gpushare-Holder'}>
        <span className="jp-gpushare-Position">{trans.__('Now')}</span>
        <TenantName tenant={holder} trans={trans} />
        <Elapsed atMs={receivedAtMs} seconds={holder.heldS} trans={trans} />
      </p>
      {anyoneWaits && holder.turnLeftS !== null && holder.holdLeftS <= 0 && (
        <p className="jp-gpushare-Hold jp-mod-holder">
          <TurnLeft atMs={receivedAtMs} seconds={holder.turnLeftS} trans={trans} />
        </p>
      )}
      {holder.frozen && (
        <p className="jp-gpushare-Hold jp-mod-holder">
          {trans.__('Frozen: it gives the GPU back when it goes on.')}
        </p>
      )}
      {holder.holdLeftS > 0 && (
        <p className="jp-gpushare-Hold jp-mod-holder">
          <HoldLeft
            atMs={receivedAtMs}
            mine={holder.mine}
            seconds={holder.holdLeftS}
            trans={trans}
          />
        </p>
      )}
    </>
  );
}

function WaiterView(props: {
  readonly waiter: IWaiter;
  readonly receivedAtMs: number;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { receivedAtMs, trans, waiter } = props;
  return (
    <li
      className={waiter.mine ? 'jp-gpushare-Waiter jp-mod-mine' : 'jp-gpushare-Waiter'}
      value={waiter.position}
    >
      <span aria-hidden="true" className="jp-gpushare-Position">
        {waiter.position}
      </span>
      <TenantName tenant={waiter} trans={trans} />
      <Elapsed atMs={receivedAtMs} seconds={waiter.waitedS} trans={trans} />
      {waiter.wait && (
        <span className="jp-gpushare-Expected">
          <WaitLeft atMs={receivedAtMs} trans={trans} wait={waiter.wait} />
        </span>
      )}
      {waiter.why && <span className="jp-gpushare-Expected">{waiter.why}</span>}
    </li>
  );
}

function TenantName(props: {
  readonly tenant: ITenant;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { tenant, trans } = props;
  const name = formatTenant(tenant, trans);
  const owner = formatOwner(tenant, trans);
  const runsAs = formatClass(tenant, trans);
  return (
    <span className="jp-gpushare-Tenant" title={owner ? `${name} · ${owner}` : name}>
      <bdi className="jp-gpushare-TenantName">{name}</bdi>
      {owner && <bdi className="jp-gpushare-Owner">{owner}</bdi>}
      {runsAs && <span className="jp-gpushare-Class">{runsAs}</span>}
    </span>
  );
}

function bytesFromOutside(device: IDevice): number {
  return Math.max(0, (device.bytesForeign ?? 0) - (device.bytesContexts ?? 0));
}

/** More than CUDA itself takes, which nobody has to be told of. */
function usedFromOutside(device: IDevice): boolean {
  const bytes = bytesFromOutside(device);
  return bytes > 2 * 1024 ** 3 && bytes > device.bytesTotal / 20;
}
