import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib/', 'node_modules/', 'coverage/', 'style/', '**/*.js', '**/*.mjs'] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      eqeqeq: 'error',
      'no-console': 'error',
      // Options and constants live in the namespace of their class, as everywhere in JupyterLab.
      '@typescript-eslint/no-namespace': 'off',
      // Numbers read well in texts.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // Signals take the object beside the method.
      '@typescript-eslint/unbound-method': 'off'
    }
  }
);
