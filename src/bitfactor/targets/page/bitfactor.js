// Binary networks of bitfactor in a browser or in node: files .bfp, as `bitfactor freeze` writes them.
//
//     import { Network } from "./bitfactor.js";
//     const network = await Network.load("net.bfp");
//     const scores = network.run(x);   // a Float32Array of one sample, (channels, height, width)
//
// The core is WebAssembly with vectors of 128 bits; relaxed ones are taken where the browser has them, and threads
// where the page is cross-origin isolated.

const VALUES = ["real", "integers", "signs"];
const PAGE_OF_ERROR = 512; // bf_error in bitfactor.h; the offsets below are those of its structures, in 32 bits

// A function that takes one instruction: i8x16.splat, of the plain vectors, or i8x16.relaxed_swizzle.
const probe = (...body) =>
  WebAssembly.validate(
    // prettier-ignore
    new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0,
      10, body.length + 4, 1, body.length + 2, 0, ...body, 11]),
  );
const splat = [65, 0, 253, 15];

/** Whether vectors are there at all, and whether relaxed ones are. */
export const hasSimd = () => probe(...splat);
export const hasRelaxedSimd = () => probe(...splat, ...splat, 253, 128, 2);

/** Whether threads may share memory: in node, and in a page that is served with the headers for it. */
export const hasThreads = () => typeof SharedArrayBuffer !== "undefined" && (globalThis.crossOriginIsolated ?? true);

async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (typeof Response !== "undefined" && source instanceof Response) return answered(source);
  if (typeof source !== "string" && !(source instanceof URL))
    throw new TypeError(`expected a URL, a Response or bytes of a .bfp file, found ${describe(source)}`);
  const base = typeof document === "undefined" ? import.meta.url : document.baseURI;
  const url = new URL(source, base);
  if (url.protocol !== "file:") return answered(await fetch(url));
  const { readFile } = await import(NODE + "fs/promises");
  return new Uint8Array(await readFile(url));
}

async function answered(response) {
  if (!response.ok) throw new Error(`${response.url}: expected a file, found status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

const NODE = "node:"; // apart from the names, which bundlers for browsers would look for

const describe = (value) => (value === null ? "null" : (value?.constructor?.name ?? typeof value));

// Memory of a module, in pages of 64 KiB, and the stack of a thread in bytes: as native/web/build.py says.
const MEMORY = { initial: 64, maximum: 16384 };
const STACK = 1 << 20;

// How a module asks for its memory, which ends in: shared, with a maximum.
const ASKS = [3, ...new TextEncoder().encode("env"), 6, ...new TextEncoder().encode("memory"), 2, 3];

const modules = new Map(); // compiled once
function compiled(relaxed, shared) {
  const url = relaxed ? new URL("bitfactor-relaxed.wasm", import.meta.url) : new URL("bitfactor.wasm", import.meta.url);
  const key = `${url}, ${shared}`;
  if (!modules.has(key)) {
    const module = bytesOf(url).then((bytes) => made(bytes, shared));
    modules.set(key, module);
    module.catch(() => modules.delete(key)); // it may be there the next time
  }
  return modules.get(key);
}

function made(bytes, shared) {
  const own = bytes.slice();
  if (!shared) own[own.findIndex((_, i) => ASKS.every((byte, k) => own[i + k] === byte)) + ASKS.length - 1] = 1;
  return WebAssembly.compile(own);
}

// Half of the logical CPUs, which often are two for a core, and four at most.
const defaultThreads = () => (hasThreads() ? Math.min(4, Math.ceil((globalThis.navigator?.hardwareConcurrency ?? 2) / 2)) : 1);

function expectThreads(threads) {
  if (!Number.isInteger(threads) || threads < 1 || threads > 64)
    throw new RangeError(`threads: expected a whole number from 1 to 64, found ${threads}${typeof threads === "string" ? " as text" : ""}`);
  if (threads > 1 && !hasThreads())
    throw new Error(
      "threads: expected a page that is cross-origin isolated, found one that is not; leave `threads` out, or serve " +
        "it with Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
    );
}

// Workers that are up, and wait for the first message.
async function startedWorkers(count) {
  const node = globalThis.process?.versions?.node && (await import(NODE + "worker_threads"));
  const start = () =>
    new Promise((resolve, reject) => {
      const worker = node
        ? new node.Worker(new URL("thread.js", import.meta.url))
        : new Worker(new URL("thread.js", import.meta.url), { type: "module" });
      const listen = node ? worker.once.bind(worker) : worker.addEventListener.bind(worker);
      listen("message", () => {
        if (node) worker.unref();
        resolve(worker);
      });
      listen("error", (event) => reject(new Error(`thread.js: a thread cannot be started: ${event.message ?? "no such script"}`)));
    });
  const started = await Promise.allSettled(Array.from({ length: count }, start));
  const workers = started.flatMap(({ value }) => value ?? []);
  const failed = started.find(({ reason }) => reason);
  if (!failed) return workers;
  workers.forEach((worker) => worker.terminate());
  throw failed.reason;
}

// A network that is no longer used has no more use for its threads.
const abandoned = new FinalizationRegistry((workers) => workers.forEach((worker) => worker.terminate()));

// The core asks the system for nothing; what its C library might, is refused.
const system = new Proxy(
  {},
  {
    get: (_, name) =>
      name === "proc_exit"
        ? () => {
            throw new Error("the core stopped");
          }
        : () => 52, // ENOSYS
  },
);

/** A network in memory of its own. */
export class Network {
  #core;
  #memory;
  #workers;
  #error;
  #network;
  #input;
  #outputs;
  #table; // the pointers to the input and to the outputs
  #difference;

  /**
   * Loads a network: from a URL, a Response, or the bytes of a .bfp file.
   *
   * `relaxed: false` keeps to the plain vectors, whose results are the same in every browser. `threads` are up to
   * four, by the device, where memory can be shared and workers start, else 1; results do not depend on them.
   */
  static async load(source, { relaxed = true, threads } = {}) {
    if (!hasSimd()) throw new Error("expected a browser with WebAssembly SIMD, found none; use one of 2021 or later");
    const most = threads ?? defaultThreads();
    expectThreads(most);
    const module = compiled(relaxed && hasRelaxedSimd(), most > 1).catch(() => {}); // both on their way at once
    const [bytes] = await Promise.all([bytesOf(source), module]);
    try {
      return await Network.#loaded(bytes, relaxed, most);
    } catch (error) {
      if (threads !== undefined || most === 1) throw error;
      return Network.#loaded(bytes, relaxed, 1);
    }
  }

  static async #loaded(bytes, relaxed, threads) {
    const shared = threads > 1;
    const module = await compiled(relaxed && hasRelaxedSimd(), shared);
    const memory = new WebAssembly.Memory({ ...MEMORY, shared });
    const workers = await startedWorkers(threads - 1);
    const waiting = [...workers];
    const start = (body) => {
      const stack = core.malloc(STACK) + STACK;
      const align = core.__tls_align.value;
      const variables = (core.malloc(core.__tls_size.value + align) + align - 1) & -align;
      const imports = WebAssembly.Module.imports(module).map(({ name }) => name);
      const lost = core.bf_thread_lost.value;
      waiting.pop().postMessage({ module, imports, memory, body, stack: stack & ~15, variables, lost });
    };
    const imports = { env: { memory, bf_start: start }, wasi_snapshot_preview1: system };
    let core;
    try {
      core = (await WebAssembly.instantiate(module, imports)).exports;
      return new Network(core, memory, workers, bytes);
    } catch (error) {
      workers.forEach((worker) => worker.terminate());
      throw error;
    }
  }

  /** Use `Network.load`. */
  constructor(core, memory, workers, bytes) {
    this.#core = core;
    this.#memory = memory;
    this.#workers = workers;
    core._initialize();
    this.#error = core.malloc(PAGE_OF_ERROR);
    const file = core.malloc(bytes.length + 64);
    const aligned = (file + 63) & ~63;
    this.#bytes(aligned, bytes.length).set(bytes);
    this.#network = core.bf_load(aligned, bytes.length, this.#error);
    if (!this.#network) this.#fail();
    this.threads = 1 + workers.length;
    if (workers.length && core.bf_set_threads(this.#network, this.threads, this.#error)) this.#fail();
    abandoned.register(this, workers);
    this.input = this.#tensor(core.bf_input, 0);
    this.outputs = Array.from({ length: core.bf_output_count(this.#network) }, (_, i) => this.#tensor(core.bf_output, i));
    this.labels = Array.from({ length: core.bf_label_count(this.#network) }, (_, i) =>
      this.#text(core.bf_label(this.#network, i)),
    );
    this.edges = Array.from({ length: core.bf_edge_count(this.#network) }, (_, i) => this.#edge(i));
    this.image = this.#image();
    this.instructionSet = this.#text(core.bf_instruction_set(this.#network));
    const floats = (n) => core.malloc(4 * n);
    this.#input = floats(this.input.size);
    this.#outputs = this.outputs.map(({ size }) => floats(size));
    this.#difference = floats(1);
    this.#table = core.malloc(4 + 4 * this.#outputs.length);
    this.#words(this.#table, 1 + this.#outputs.length).set([this.#input, ...this.#outputs]);
  }

  /** Returns the output for one sample, or an array of outputs where the network has several. */
  run(x) {
    if (!(x instanceof Float32Array) || x.length !== this.input.size)
      throw new TypeError(
        `expected a Float32Array of ${this.input.size} values, (${this.input.shape.join(", ")}), found ` +
          `${describe(x)}${x?.length === undefined ? "" : ` of ${x.length}`}`,
      );
    this.#expectOpen();
    this.#floats(this.#input, x.length).set(x);
    if (this.#called("bf_run", 1, this.#table, this.#table + 4)) this.#fail();
    const outputs = this.outputs.map(({ size }, i) => this.#floats(this.#outputs[i], size).slice());
    return outputs.length > 1 ? outputs : outputs[0];
  }

  /** Ends the threads. A network that nothing refers to any more ends them by itself, some time later. */
  close() {
    this.#workers.forEach((worker) => worker.terminate());
    this.#core = null;
  }

  /** Whether the golden input of the file gives the golden outputs, bit for bit; and the largest difference. */
  verify() {
    this.#expectOpen();
    const status = this.#called("bf_verify", this.#difference);
    if (status !== 0 && status !== 5) this.#fail();
    return { same: status === 0, difference: this.#floats(this.#difference, 1)[0] };
  }

  /**
   * Turns the pixels of an image of any size, red, green, blue and an alpha that is left out, as an ImageData has them,
   * into the network's input: resized, cropped in the centre, then (x / 255 - mean) / std, bit for bit as in Python.
   */
  prepare({ data, width, height }) {
    this.#expectOpen();
    if (!this.image) throw new Error("the file does not say how an image becomes its input");
    if (data?.length !== 4 * width * height)
      throw new TypeError(`expected 4 values for each of ${width} x ${height} pixels, found ${describe(data)} of ${data?.length}`);
    const pixels = this.#core.malloc(data.length);
    if (!pixels) throw new RangeError(`expected an image that fits the memory, found ${width} x ${height} pixels`);
    try {
      this.#bytes(pixels, data.length).set(data);
      if (this.#called("bf_prepare_image", pixels, height, width, 4, this.#input)) this.#fail();
      return this.#floats(this.#input, this.input.size).slice();
    } finally {
      this.#core?.free(pixels);
    }
  }

  #expectOpen() {
    if (!this.#core) throw new Error("expected an open network, found one that was closed");
  }

  // The core or one of its threads may stop in the midst of a run, after which nothing can be said of its memory.
  #called(name, ...values) {
    try {
      return this.#core[name](this.#network, ...values, this.#error);
    } catch (error) {
      this.close();
      throw new Error(`the network stopped and was closed: load it again (${error.message})`, { cause: error });
    }
  }

  #fail() {
    throw new Error(this.#text(this.#error + 4));
  }

  #tensor(ask, i) {
    const at = this.#core.malloc(40);
    if (ask(this.#network, i, at, this.#error)) this.#fail();
    const [name, values, dimensions, ...rest] = this.#words(at, 10);
    return { name: this.#text(name), values: VALUES[values], shape: rest.slice(0, dimensions), size: rest[6] };
  }

  #edge(i) {
    const at = this.#core.malloc(8);
    if (this.#core.bf_edge(this.#network, i, at, this.#error)) this.#fail();
    return [...this.#words(at, 2)];
  }

  #image() {
    const at = this.#core.malloc(48);
    if (this.#core.bf_image_of(this.#network, at, this.#error)) return null;
    const [height, width, resizeHeight, resizeWidth, keepAspect, channels] = this.#words(at, 6);
    const mean = [...this.#floats(at + 24, channels)];
    const std = [...this.#floats(at + 36, channels)];
    return { height, width, resizeHeight, resizeWidth, keepAspect: Boolean(keepAspect), channels, mean, std };
  }

  // The memory may grow and then lies elsewhere, so views are made when they are needed.
  #bytes(at, n) {
    return new Uint8Array(this.#memory.buffer, at, n);
  }

  #words(at, n) {
    return new Uint32Array(this.#memory.buffer, at, n);
  }

  #floats(at, n) {
    return new Float32Array(this.#memory.buffer, at, n);
  }

  #text(at) {
    const bytes = new Uint8Array(this.#memory.buffer, at);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))); // a copy, for no decoder takes shared memory
  }
}
