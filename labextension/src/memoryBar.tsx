import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReactElement } from 'react';

import { Counting } from './elapsed';
import { formatBytes } from './format';
import {
  explainShares,
  formatMemory,
  formatShare,
  isDetail,
  memoryPercent,
  memoryShares,
  type IMemoryShare
} from './formatMemory';
import { UNNAMED, type IDevice, type ITenantMemory } from './state';

/** So many tenants of others are named below the bar; the rest is summed up. */
const NAMED_MAX = 4;

/** How full the device is, as one bar with a part for each tenant, and whose it is, in words. */
export function MemoryBar(props: MemoryBar.IProps): ReactElement {
  const { bytesMine, device, trans } = props;
  const text = formatMemory(device, trans);
  const shares = memoryShares(device, bytesMine);
  const explained = explainShares(shares, trans);
  const told = shares.filter(share => !isDetail(share));
  return (
    <>
      <div className="jp-gpushare-Memory" title={explained}>
        <div
          aria-label={trans.__('Memory in use')}
          aria-valuemax={100}
          aria-valuemin={0}
          aria-valuenow={Math.round(memoryPercent(device))}
          aria-valuetext={text}
          className="jp-gpushare-MemoryBar"
          role="meter"
        >
          {shares.flatMap(share =>
            partsOf(share, device).map(({ key, percent }) => (
              <div
                className={`jp-gpushare-Share jp-mod-${share.kind}`}
                key={key}
                style={{ width: `${percent}%` }}
              />
            ))
          )}
        </div>
        <span aria-hidden="true" className="jp-gpushare-MemoryText">
          {text}
        </span>
      </div>
      {told.length > 0 && (
        <ul
          aria-label={trans.__('Whose the memory is')}
          className="jp-gpushare-Shares"
          title={explained}
        >
          {told.flatMap(share =>
            wordsOf(share, device, trans).map(({ key, who, words }) => (
              <li className={`jp-gpushare-ShareText jp-mod-${share.kind}`} key={key}>
                <Counting words={`${who} ${words}`}>
                  {who && (
                    <>
                      <bdi>{who}</bdi>{' '}
                    </>
                  )}
                  {words}
                </Counting>
              </li>
            ))
          )}
        </ul>
      )}
    </>
  );
}

export namespace MemoryBar {
  export interface IProps {
    readonly device: IDevice;
    /** What my kernels have on it. */
    readonly bytesMine: number;
    readonly trans: TranslationBundle;
  }
}

interface IPart {
  readonly key: string;
  readonly percent: number;
}

/** The tenants that a share of the bar belongs to. */
function tenantsOf(share: IMemoryShare, device: IDevice): readonly ITenantMemory[] {
  return share.kind === 'mine' || share.kind === 'others'
    ? device.tenants.filter(each => each.mine === (share.kind === 'mine'))
    : [];
}

/** A share of the bar, cut by tenant; the whole of it where nothing is known of them. */
export function partsOf(share: IMemoryShare, device: IDevice): readonly IPart[] {
  const tenants = tenantsOf(share, device);
  const sum = tenants.reduce((bytes, each) => bytes + each.bytesResident, 0);
  return sum > 0
    ? tenants.map((each, index) => ({
        key: each.tenantId || `${share.kind}-${index}`,
        percent: (share.percent * each.bytesResident) / sum
      }))
    : [{ key: share.kind, percent: share.percent }];
}

interface IWords {
  readonly key: string;
  /** Whose name it is, as text of any script; empty where it is nobody's. */
  readonly who: string;
  readonly words: string;
}

/** Others by name, as far as the reader may know them; what is left of a share in one word. */
export function wordsOf(
  share: IMemoryShare,
  device: IDevice,
  trans: TranslationBundle
): readonly IWords[] {
  const named =
    share.kind === 'others'
      ? tenantsOf(share, device)
          .filter(each => nameOf(each))
          .slice(0, NAMED_MAX)
      : [];
  const rest = share.bytes - named.reduce((bytes, each) => bytes + each.bytesResident, 0);
  return [
    ...named.map(each => ({
      key: each.tenantId,
      who: nameOf(each),
      words: formatBytes(each.bytesResident)
    })),
    ...(rest > 0
      ? [{ key: share.kind, who: '', words: formatShare({ ...share, bytes: rest }, trans) }]
      : [])
  ];
}

function nameOf(tenant: ITenantMemory): string {
  const { name, owner } = tenant;
  if (owner === UNNAMED || name === UNNAMED) {
    return '';
  }
  return owner && name && owner !== name ? `${owner}: ${name}` : name || owner;
}
