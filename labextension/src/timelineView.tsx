import type { TranslationBundle } from '@jupyterlab/translation';
import {
  createContext,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
  type ReactElement,
  type RefObject
} from 'react';

import type { IDevice } from './state';
import {
  barsOf,
  formatActor,
  formatTurn,
  plotDataOf,
  summaryOf,
  timelineOf,
  waitBarsOf,
  type IBar,
  type IDeviceTimeline,
  type ITimeline,
  type PlotData
} from './timeline';
import type { IPlot } from './timelinePlot';
import type { Timelines } from './timelines';

/** Where the timelines come from; without them nothing is shown. */
export const TimelineContext = createContext<Timelines | null>(null);

/** A name is written into a bar that is at least so wide, in percent. */
const NAMED_PERCENT = 15;

/** What happened on a device in the last 15 minutes: a section that is closed until it is opened. */
export function TimelineView(props: TimelineView.IProps): ReactElement | null {
  const { device, trans } = props;
  const timelines = useContext(TimelineContext);
  const [isOpen, setOpen] = useState(() => wasOpen(device.id));
  if (!timelines) {
    return null;
  }
  return (
    <details
      className="jp-gpushare-Timeline"
      onToggle={event => {
        setOpen(event.currentTarget.open);
        rememberOpen(device.id, event.currentTarget.open);
      }}
      open={isOpen}
    >
      <summary className="jp-gpushare-TimelineHead">{trans.__('Last 15 minutes')}</summary>
      {isOpen && <Watched device={device} timelines={timelines} trans={trans} />}
    </details>
  );
}

export namespace TimelineView {
  export interface IProps {
    readonly device: IDevice;
    readonly trans: TranslationBundle;
  }
}

/** The picture, or why there is none. It is kept up to date while it is on the screen. */
function Watched(props: TimelineView.IProps & { readonly timelines: Timelines }): ReactElement {
  const { device, timelines, trans } = props;
  const { isFailing, timeline } = useNewest(timelines);
  const place = useRef<HTMLDivElement>(null);
  const isVisible = useIsVisible(place);
  useEffect(() => {
    if (!isVisible) {
      return;
    }
    const watching = timelines.watch();
    return () => {
      watching.dispose();
    };
  }, [isVisible, timelines]);
  return (
    <div ref={place}>
      {isFailing && (
        <p className="jp-gpushare-Reason">
          {trans.__('The server does not answer: this may be out of date.')}
        </p>
      )}
      {!timeline && !isFailing && (
        <p className="jp-gpushare-Empty">{trans.__('Asking the server…')}</p>
      )}
      {timeline?.windowS === 0 && (
        <p className="jp-gpushare-Reason">
          {trans.__('The server keeps no timeline: a newer version of GPU sharing does.')}
        </p>
      )}
      {timeline && timeline.windowS > 0 && (
        <Picture device={device} timeline={timeline} trans={trans} />
      )}
    </div>
  );
}

function Picture(props: TimelineView.IProps & { readonly timeline: ITimeline }): ReactElement {
  const { device, timeline, trans } = props;
  const here = timelineOf(timeline, device.id);
  const data = useMemo(
    () => plotDataOf(here.samples, timeline.sampleS, device.bytesTotal),
    [here, timeline.sampleS, device.bytesTotal]
  );
  return (
    <>
      <div aria-hidden="true">
        <Lane timeline={here} trans={trans} windowS={timeline.windowS} />
        {data[0].length > 0 && <Plot data={data} trans={trans} windowS={timeline.windowS} />}
        <Legend hasSamples={data[0].length > 0} trans={trans} />
      </div>
      <p className="jp-gpushare-TimelineSummary">{summaryOf(here, timeline.windowS, trans)}</p>
    </>
  );
}

/** Who had the device, as bars, and below them when somebody waited. */
function Lane(props: {
  readonly timeline: IDeviceTimeline;
  readonly windowS: number;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { timeline, trans, windowS } = props;
  const { bars, rows } = useMemo(() => barsOf(timeline.turns, windowS), [timeline, windowS]);
  const waits = useMemo(() => waitBarsOf(timeline.waits, windowS), [timeline, windowS]);
  return (
    <>
      <div className="jp-gpushare-Lane" style={{ height: `${20 * rows}px` }}>
        {bars.map((bar, place) => (
          <TurnBar bar={bar} key={place} trans={trans} />
        ))}
      </div>
      <div className="jp-gpushare-Lane jp-mod-waits">
        {waits.map(({ left, waiting, width }) => (
          <div
            className="jp-gpushare-WaitBar"
            key={left}
            style={{ left: `${left}%`, width: `${width}%` }}
            title={trans.__('%1 waited', waiting)}
          />
        ))}
      </div>
    </>
  );
}

function TurnBar(props: { readonly bar: IBar; readonly trans: TranslationBundle }): ReactElement {
  const { bar, trans } = props;
  const { actor, part } = bar.turn;
  return (
    <div
      className={actor.own ? 'jp-gpushare-TurnBar jp-mod-mine' : 'jp-gpushare-TurnBar'}
      style={{
        height: `${Math.max(4, 18 * part)}px`,
        left: `${bar.left}%`,
        top: `${20 * bar.row + 19 - Math.max(4, 18 * part)}px`,
        width: `${bar.width}%`
      }}
      title={formatTurn(bar.turn, trans)}
    >
      {bar.width >= NAMED_PERCENT && part >= 0.8 && (
        <bdi className="jp-gpushare-TurnName">{formatActor(actor, trans)}</bdi>
      )}
    </div>
  );
}

function Legend(props: {
  readonly hasSamples: boolean;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { hasSamples, trans } = props;
  const entries = [
    ['mine', trans.__('yours')],
    ['others', trans.__('others')],
    ['waits', trans.__('somebody waits')],
    ...(hasSamples
      ? [
          ['use', trans.__('GPU in use')],
          ['memory', trans.__('memory in use')]
        ]
      : [])
  ];
  return (
    <ul className="jp-gpushare-TimelineLegend">
      {entries.map(([kind, words]) => (
        <li className={`jp-gpushare-TimelineKey jp-mod-${kind ?? ''}`} key={kind}>
          {words}
        </li>
      ))}
    </ul>
  );
}

/** Lines, drawn once their code has been loaded. */
function Plot(props: {
  readonly data: PlotData;
  readonly windowS: number;
  readonly trans: TranslationBundle;
}): ReactElement {
  const { data, trans, windowS } = props;
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<IPlot | null>(null);
  const [isMissing, setMissing] = useState(false);
  const newest = useRef(data);
  newest.current = data;
  useEffect(() => {
    let isOver = false;
    const words = {
      now: trans.__('now'),
      minutesAgo: (minutes: number) => trans.__('−%1 min', minutes)
    };
    import('./timelinePlot')
      .then(({ openPlot }) => {
        if (!isOver && host.current) {
          plot.current = openPlot(host.current, newest.current, windowS, words);
        }
      })
      .catch(() => {
        // The server may be away. uPlot also fails in a browser whose language is no language tag.
        setMissing(!isOver);
      });
    return () => {
      isOver = true;
      plot.current?.dispose();
      plot.current = null;
    };
  }, [trans, windowS]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  if (isMissing) {
    return <p className="jp-gpushare-Reason">{trans.__('The lines cannot be drawn here.')}</p>;
  }
  return <div className="jp-gpushare-Plot" ref={host} />;
}

/** Renders again whenever they have changed. */
function useNewest(timelines: Timelines): Timelines {
  const [, setChanges] = useState(0);
  useEffect(() => {
    const onChange = (): void => {
      setChanges(changes => changes + 1);
    };
    timelines.changed.connect(onChange);
    return () => {
      timelines.changed.disconnect(onChange);
    };
  }, [timelines]);
  return timelines;
}

/** Whether any of it is on the screen. A hidden sidebar is not. */
function useIsVisible(place: RefObject<HTMLElement | null>): boolean {
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    if (!place.current) {
      return;
    }
    const observer = new IntersectionObserver(entries => {
      setVisible(entries[entries.length - 1]?.isIntersecting ?? false);
    });
    observer.observe(place.current);
    return () => {
      observer.disconnect();
    };
  }, [place]);
  return isVisible;
}

const REMEMBERED = '@jupyter-gpushare/labextension:timeline:';

/** A browser may keep nothing for us: the section is closed then. */
function wasOpen(deviceId: string): boolean {
  try {
    return localStorage.getItem(REMEMBERED + deviceId) !== null;
  } catch {
    return false;
  }
}

function rememberOpen(deviceId: string, isOpen: boolean): void {
  try {
    if (isOpen) {
      localStorage.setItem(REMEMBERED + deviceId, 'open');
    } else {
      localStorage.removeItem(REMEMBERED + deviceId);
    }
  } catch {
    // It is closed when the page is loaded next, as at first.
  }
}
