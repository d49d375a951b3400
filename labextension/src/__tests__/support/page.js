// What JupyterLab's packages ask of a browser at load, and jsdom does not have.
const { TextDecoder, TextEncoder } = require('util');

Object.assign(globalThis, { TextDecoder, TextEncoder });
globalThis.DragEvent ??= class DragEvent extends Event {};
globalThis.fetch ??= () => Promise.reject(new TypeError('no network in these tests'));
globalThis.Headers ??= class Headers {};
globalThis.Request ??= class Request {};
globalThis.Response ??= class Response {};
// jsdom has no layout, and so nothing to scroll.
Element.prototype.scrollIntoView ??= () => undefined;
// Tells React that each change is awaited by the test that makes it.
globalThis.IS_REACT_ACT_ENVIRONMENT = true;
