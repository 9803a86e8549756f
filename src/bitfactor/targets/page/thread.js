// A thread of a network: a worker that shares its memory. bitfactor.js starts it and tells it what to run.
const port = globalThis.process?.versions?.node ? (await import("node:worker_threads")).parentPort : self;

port.onmessage = ({ data: { module, imports, memory, body, stack, variables, lost } }) => {
  const refused = Object.fromEntries(imports.map((name) => [name, () => 52]));
  const env = { memory, bf_start: () => {} };
  try {
    const core = new WebAssembly.Instance(module, { env, wasi_snapshot_preview1: refused }).exports;
    core.__stack_pointer.value = stack;
    core.__wasm_init_tls(variables);
    core.bf_thread(body);
  } catch (error) {
    Atomics.store(new Int32Array(memory.buffer), lost / 4, 1);
    throw error;
  }
};
port.postMessage("up");
