// JupyterLab's packages are ES modules, which Jest takes only after a transformation.
const esModules = ['@jupyter', '@jupyterlab', '@lumino', 'lib0', 'y-protocols', 'yjs', 'uuid'];

module.exports = {
  moduleNameMapper: {
    '\\.css$': '<rootDir>/src/__tests__/support/text.js',
    '\\.svg$': '<rootDir>/src/__tests__/support/text.js'
  },
  roots: ['<rootDir>/src'],
  setupFiles: ['<rootDir>/src/__tests__/support/page.js'],
  testEnvironment: 'jsdom',
  // It ends a hang, and says nothing about speed.
  testTimeout: 600_000,
  testRegex: '/__tests__/[^/]+\\.spec\\.tsx?$',
  transform: {
    '\\.[jt]sx?$': [
      'ts-jest',
      {
        tsconfig: {
          allowJs: true,
          isolatedModules: true,
          jsx: 'react-jsx',
          module: 'commonjs',
          esModuleInterop: true
        }
      }
    ]
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esModules.join('|')})/)`]
};
