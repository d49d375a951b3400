// Makes one script of what tsc has compiled: a browser that has never seen the page asks for few files.
import { fileURLToPath } from 'node:url';

import { rspack } from '@rspack/core';

const here = path => fileURLToPath(new URL(path, import.meta.url));

rspack(
  {
    mode: 'production',
    context: here('.'),
    entry: here('lib/page.js'),
    devtool: false,
    output: { path: here('../../jupyter_gpushare/view/static'), filename: 'page.js' }
  },
  (error, stats) => {
    if (error || stats?.hasErrors()) {
      process.stderr.write(`${error ?? stats.toString('errors-only')}\n`);
      process.exitCode = 1;
    }
  }
);
