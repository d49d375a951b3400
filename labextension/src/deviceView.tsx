import type { TranslationBundle } from '@jupyterlab/translation';
import { useId, type ReactElement } from 'react';

import { Elapsed, HoldLeft } from './elapsed';
import {
  explainShares,
  formatDeviceId,
  formatMemory,
  formatMode,
  formatOwner,
  formatShare,
  formatTenant,
  memoryPercent,
  memoryShares
} from './format';
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
        <Memory bytesMine={bytesMine} device={device} trans={trans} />
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

/** How full the device is, as a bar, and whose it is, in words. */
function Memory(props: {
  readonly bytesMine: number;
  readonly device: IDevice;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { bytesMine, device, trans } = props;
  const text = formatMemory(device, trans);
  const shares = memoryShares(device, bytesMine);
  return (
    <>
      <div className="jp-gpushare-Memory">
        <div
          aria-label={trans.__('Memory in use')}
          aria-valuemax={100}
          aria-valuemin={0}
          aria-valuenow={Math.round(memoryPercent(device))}
          aria-valuetext={text}
          className="jp-gpushare-MemoryBar"
          role="meter"
        >
          {shares.map(({ kind, percent }) => (
            <div
              className={`jp-gpushare-Share jp-mod-${kind}`}
              key={kind}
              style={{ width: `${percent}%` }}
            />
          ))}
        </div>
        <span aria-hidden="true" className="jp-gpushare-MemoryText">
          {text}
        </span>
      </div>
      {shares.length > 0 && (
        <ul
          aria-label={trans.__('Whose the memory is')}
          className="jp-gpushare-Shares"
          title={explainShares(trans)}
        >
          {shares.map(share => (
            <li className={`jp-gpushare-ShareText jp-mod-${share.kind}`} key={share.kind}>
              {formatShare(share, trans)}
            </li>
          ))}
        </ul>
      )}
    </>
  );
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
      {holder.frozen && (
        <p className="jp-gpushare-Hold jp-mod-holder">
          {trans.__('Frozen: it gives the GPU back when it goes on.')}
        </p>
      )}
      {holder.holdLeftS > 0 && (
        <p className="jp-gpushare-Hold jp-mod-holder">
          <HoldLeft atMs={receivedAtMs} seconds={holder.holdLeftS} trans={trans} />
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
  return (
    <span className="jp-gpushare-Tenant" title={owner ? `${name} · ${owner}` : name}>
      <bdi className="jp-gpushare-TenantName">{name}</bdi>
      {owner && <bdi className="jp-gpushare-Owner">{owner}</bdi>}
    </span>
  );
}
