/** The lines of the timeline. This module is loaded when the first timeline is opened. */

import uPlot from 'uplot';

import type { PlotData } from './timeline';

/** The room of the labels at the left, and at the right: the bars above have the same. */
const LEFT_PX = 36;
const RIGHT_PX = 16;
const HEIGHT_PX = 104;

export interface IPlot {
  setData(data: PlotData): void;
  dispose(): void;
}

/** What is written at the axes. */
export interface IPlotWords {
  readonly now: string;
  readonly minutesAgo: (minutes: number) => string;
}

/** Draws into `host`, again whenever its width or the theme changes. */
export function openPlot(
  host: HTMLElement,
  data: PlotData,
  windowS: number,
  words: IPlotWords
): IPlot {
  const plot = new uPlot(optionsFor(host, windowS, words), data, host);
  const resized = new ResizeObserver(() => {
    if (host.clientWidth > 0 && host.clientWidth !== plot.width) {
      plot.setSize({ width: host.clientWidth, height: HEIGHT_PX });
    }
  });
  resized.observe(host);
  const themed = new MutationObserver(() => {
    plot.redraw(false);
  });
  themed.observe(document.body, { attributeFilter: ['data-jp-theme-name'] });
  return {
    setData: next => {
      plot.setData(next);
    },
    dispose: () => {
      resized.disconnect();
      themed.disconnect();
      plot.destroy();
    }
  };
}

function optionsFor(host: HTMLElement, windowS: number, words: IPlotWords): uPlot.Options {
  const style = getComputedStyle(host);
  const colour = (name: string) => (): string => style.getPropertyValue(name).trim();
  const grid = { stroke: colour('--jp-border-color2'), width: 1 };
  const font = `10px ${style.fontFamily}`;
  const text = colour('--jp-ui-font-color2');
  const axis = { font, gap: 4, grid, stroke: text, ticks: { show: false } };
  return {
    width: Math.max(1, host.clientWidth),
    height: HEIGHT_PX,
    padding: [6, RIGHT_PX, 0, 0],
    cursor: { show: false },
    legend: { show: false },
    scales: {
      x: { time: false, range: [-windowS, 0] },
      y: { range: [0, 100] }
    },
    axes: [
      {
        ...axis,
        size: 20,
        splits: () => [0, 1, 2, 3].map(third => -windowS + (third * windowS) / 3),
        values: (_, splits) =>
          splits.map(atS => (atS > -1 ? words.now : words.minutesAgo(Math.round(-atS / 60))))
      },
      {
        ...axis,
        size: LEFT_PX,
        splits: () => [0, 50, 100],
        values: (_, splits) => splits.map(percent => `${percent} %`)
      }
    ],
    series: [
      {},
      {
        stroke: colour('--jp-gpushare-timeline-use'),
        width: 1.5,
        points: { show: false }
      },
      {
        stroke: colour('--jp-gpushare-timeline-memory'),
        dash: [5, 3],
        width: 1.5,
        points: { show: false }
      }
    ]
  };
}
