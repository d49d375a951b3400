/** What the view's service answers (openapi.yaml): one interface for each kind of row. */

export interface IPlace {
  tenant: string | null;
  name: string;
  owner: string | null;
  mine: boolean;
  for_s: number;
  recalled: boolean;
  overdue: boolean;
  frozen: boolean;
}

export interface IDevice {
  name: string;
  bytes_total: number;
  bytes_used: number;
  bytes_usable: number;
  bytes_outside: number;
  mode: string;
  lost: boolean;
  holders: IPlace[];
  holders_count: number;
  queue: IPlace[];
  queue_count: number;
}

export interface ITenant {
  node: string;
  node_state: NodeState;
  id: string;
  name: string;
  owner: string;
  groups: string[];
  kind: string;
  state: string;
  runs_as: string;
  bytes_resident: number;
  bytes_parked: number;
  turns: number;
  waits: number;
  waited_s: number;
  held_s: number;
  why: string;
  place: 'holder' | 'queue' | '';
  position: number;
  device: string | null;
  for_s: number | null;
}

export type NodeState = 'live' | 'silent' | 'conflict' | 'recovering';

export interface INode {
  name: string;
  state: NodeState;
  heard_s_ago: number | null;
  version: string;
  version_differs: boolean;
  platform: string;
  devices: number;
  devices_free: number;
  holders: string[];
  holders_count: number;
  found: string[];
  waiting: number;
  bytes_total: number;
  bytes_used: number;
  bytes_parked: number;
  bytes_outside: number;
  outside: boolean;
  problems: string[];
}

export interface IOpenNode extends Omit<INode, 'devices' | 'tenants'> {
  owners: string;
  turns_on: boolean;
  bytes_host_available: number;
  devices: Record<string, IDevice>;
  tenants: ITenant[];
  tenants_count: number;
}

export interface ISummary {
  caller: { name: string; is_admin: boolean };
  nodes: number;
  states: Partial<Record<NodeState, number>>;
  problems: number;
  version: string;
  devices: number;
  busy: number;
  free: number;
  waiting: number;
  bytes_total: number;
  bytes_used: number;
  bytes_parked: number;
  bytes_outside: number;
  advice: { node: string; sentence: string }[];
  mine: { total: number; tenants: ITenant[] };
}

/** One of `nodes` and `tenants` is there, as was asked; `node` where one was opened. */
export interface IAnswer {
  total: number;
  nodes?: INode[];
  tenants?: ITenant[];
  summary: ISummary;
  node?: IOpenNode | null;
}

export interface IAsked {
  show: string;
  find: string;
  state: string;
  sort: string;
  offset: number;
  open: string;
}

/** The arguments of a request; what is as usual is left out. */
export function argumentsOf(asked: IAsked): URLSearchParams {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) {
    if (value !== '' && value !== 0) {
      found.set(name, String(value));
    }
  }
  return found;
}
