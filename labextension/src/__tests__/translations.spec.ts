import * as ts from 'typescript';

/** Two words, or a word that a person reads between the tags of an element. */
const WORDS = /\p{L}{2,}[^\p{L}]*\s[^\p{L}]*\p{L}/u;
const WORD = /\p{L}{2,}/u;
/** For programmers and style sheets. */
const NOT_SHOWN = new Set(['className', 'description', 'key', 'id', 'type', 'role', 'UNNAMED']);
const TRANSLATES = new Set(['__', '_n', '_p', '_np', 'gettext']);

/** Texts in a file that reach people without a translation. */
function bareTexts(name: string, text: string): string[] {
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX);
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (isNotShown(node)) {
      return;
    }
    if (ts.isJsxText(node) && WORD.test(node.text)) {
      found.push(`${name}: ${node.text.trim()}`);
    }
    if (
      (ts.isStringLiteralLike(node) || ts.isTemplateExpression(node)) &&
      WORDS.test(textOf(node))
    ) {
      found.push(`${name}: ${textOf(node)}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

function textOf(node: ts.StringLiteralLike | ts.TemplateExpression): string {
  return ts.isTemplateExpression(node)
    ? [node.head.text, ...node.templateSpans.map(span => span.literal.text)].join('')
    : node.text;
}

function isNotShown(node: ts.Node): boolean {
  if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
    return TRANSLATES.has(node.expression.name.text);
  }
  if (ts.isJsxAttribute(node) || ts.isPropertyAssignment(node) || ts.isVariableDeclaration(node)) {
    return NOT_SHOWN.has(node.name.getText());
  }
  // Errors are told in other words; tokens are described for programmers.
  return (
    ts.isImportDeclaration(node) ||
    ts.isThrowStatement(node) ||
    (ts.isNewExpression(node) && node.expression.getText() === 'Token') ||
    (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.SuperKeyword)
  );
}

describe('what people read', () => {
  it('goes through the translations', () => {
    const files = ts.sys.readDirectory('src', ['.ts', '.tsx'], ['**/__tests__']);
    expect(files.length).toBeGreaterThan(30);
    const found = files.flatMap(name => bareTexts(name, ts.sys.readFile(name) ?? ''));
    expect(found).toEqual([]);
  });

  it.each([
    '<p>Free</p>',
    '<p title="It is free">{x}</p>',
    'const x = { label: "Show the queue" };',
    'const x = `waits for ${y} seconds`;'
  ])('is missed by nobody: %s', source => {
    expect(bareTexts('x.tsx', source)).toHaveLength(1);
  });

  it('is nothing else', () => {
    const source = '<p className="jp-a jp-b">{trans.__("It is free")}{`${a}, ${b}`}</p>';
    expect(bareTexts('x.tsx', source)).toEqual([]);
  });
});
