// Binary networks of bitfactor in a browser or in node: files .bfp, as `bitfactor freeze` writes them.
//
//     import { Network } from "./bitfactor.js";
//     const network = await Network.load("net.bfp");
//     const scores = network.run(x);   // a Float32Array of one sample, (channels, height, width)
//
// The core is WebAssembly with vectors of 128 bits; relaxed ones are taken where the browser has them.

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

async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (typeof Response !== "undefined" && source instanceof Response) return answered(source);
  if (typeof source !== "string" && !(source instanceof URL))
    throw new TypeError(`expected a URL, a Response or bytes of a .bfp file, found ${describe(source)}`);
  const base = typeof document === "undefined" ? import.meta.url : document.baseURI;
  const url = new URL(source, base);
  if (url.protocol !== "file:") return answered(await fetch(url));
  const { readFile } = await import("node:fs/promises");
  return new Uint8Array(await readFile(url));
}

async function answered(response) {
  if (!response.ok) throw new Error(`${response.url}: expected a file, found status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

const describe = (value) => (value === null ? "null" : (value?.constructor?.name ?? typeof value));

const modules = new Map(); // compiled once
function compiled(relaxed) {
  const name = relaxed ? "bitfactor-relaxed.wasm" : "bitfactor.wasm";
  if (!modules.has(name))
    modules.set(name, bytesOf(new URL(name, import.meta.url)).then((bytes) => WebAssembly.compile(bytes)));
  return modules.get(name);
}

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
  #error;
  #network;
  #input;
  #outputs;
  #table; // the pointers to the input and to the outputs

  /**
   * Loads a network: from a URL, a Response, or the bytes of a .bfp file.
   *
   * `relaxed: false` keeps to the plain vectors, whose results are the same in every browser.
   */
  static async load(source, { relaxed = true } = {}) {
    if (!hasSimd()) throw new Error("expected a browser with WebAssembly SIMD, found none; use one of 2021 or later");
    const [bytes, module] = await Promise.all([bytesOf(source), compiled(relaxed && hasRelaxedSimd())]);
    const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: system });
    return new Network(instance.exports, bytes);
  }

  /** Use `Network.load`. */
  constructor(core, bytes) {
    this.#core = core;
    core._initialize();
    this.#error = core.malloc(PAGE_OF_ERROR);
    const file = core.malloc(bytes.length + 64);
    const aligned = (file + 63) & ~63;
    this.#bytes(aligned, bytes.length).set(bytes);
    this.#network = core.bf_load(aligned, bytes.length, this.#error);
    if (!this.#network) this.#fail();
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
    this.#floats(this.#input, x.length).set(x);
    if (this.#core.bf_run(this.#network, 1, this.#table, this.#table + 4, this.#error)) this.#fail();
    const outputs = this.outputs.map(({ size }, i) => this.#floats(this.#outputs[i], size).slice());
    return outputs.length > 1 ? outputs : outputs[0];
  }

  /** Whether the golden input of the file gives the golden outputs, bit for bit; and the largest difference. */
  verify() {
    const difference = this.#core.malloc(4);
    const status = this.#core.bf_verify(this.#network, difference, this.#error);
    if (status !== 0 && status !== 5) this.#fail();
    return { same: status === 0, difference: this.#floats(difference, 1)[0] };
  }

  /**
   * Turns the pixels of an ImageData of the network's size, `image.width` x `image.height`, into its input:
   * (x / 255 - mean) / std, a map for each channel.
   */
  prepare({ data, width, height }) {
    const image = this.image;
    if (!image) throw new Error("the file does not say how an image becomes its input");
    if (width !== image.width || height !== image.height)
      throw new Error(`expected an image of ${image.width} x ${image.height} pixels, found ${width} x ${height}`);
    const pixels = width * height;
    const x = new Float32Array(image.channels * pixels);
    const grey = (i) => Math.round(0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]);
    for (let c = 0; c < image.channels; c++) {
      const factor = 1 / (255 * image.std[c]);
      const shift = -image.mean[c] / image.std[c];
      for (let p = 0; p < pixels; p++) {
        x[c * pixels + p] = (image.channels === 1 ? grey(4 * p) : data[4 * p + c]) * factor + shift;
      }
    }
    return x;
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
    return new Uint8Array(this.#core.memory.buffer, at, n);
  }

  #words(at, n) {
    return new Uint32Array(this.#core.memory.buffer, at, n);
  }

  #floats(at, n) {
    return new Float32Array(this.#core.memory.buffer, at, n);
  }

  #text(at) {
    const bytes = new Uint8Array(this.#core.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }
}
