import { LabIcon } from '@jupyterlab/ui-components';

import gpuSvg from '../style/icons/gpu.svg';
import releaseSvg from '../style/icons/release.svg';

export const gpuIcon = new LabIcon({ name: 'gpushare:gpu', svgstr: gpuSvg });
export const releaseIcon = new LabIcon({ name: 'gpushare:release', svgstr: releaseSvg });
