// virtual-core asks for the environment of Node; this module stands before it.
globalThis.process ??= { env: { NODE_ENV: "production" } };
