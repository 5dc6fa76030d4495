// Loaded with --import on Node.js before 22, where node:fs has no globSync: the
// suite imports it, for a command that is not run here, and would not load.
import { register } from 'node:module';

const fs = `export * from 'node:fs';
export const globSync = () => { throw new Error('node:fs has no globSync before Node.js 22'); };`;
const hook = `export const resolve = (specifier, context, next) =>
  specifier === 'fs' && context.parentURL?.includes('@modelcontextprotocol/conformance')
    ? { url: ${JSON.stringify('data:text/javascript,' + encodeURIComponent(fs))}, format: 'module', shortCircuit: true }
    : next(specifier, context);`;
register('data:text/javascript,' + encodeURIComponent(hook));
