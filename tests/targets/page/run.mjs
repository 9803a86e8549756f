// What the tests of the web module ask: run.mjs TASK REQUEST writes JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";

import { keypoints, probabilities, softmax } from "../../../src/bitfactor/targets/page/answers.js";
import { padded } from "../../../src/bitfactor/targets/page/images.js";
import { Network, hasRelaxedSimd, hasSimd } from "../../../src/bitfactor/targets/page/bitfactor.js";

const floats = async (path) => new Float32Array(new Uint8Array(await readFile(path)).buffer);
const bytes = async (path) => new Uint8Array(await readFile(path));
const said = async (call) => {
  try {
    await call();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};

const tasks = {
  async run({ file, x, relaxed, threads = 1 }) {
    const network = await Network.load(pathToFileURL(file), { relaxed, threads });
    const values = await floats(x);
    const { size } = network.input;
    const rows = Array.from({ length: values.length / size }, (_, i) => values.subarray(i * size, (i + 1) * size));
    const outputs = rows.map((row) => [network.run(row)].flat().map((output) => [...output]));
    const { input, labels, edges, image, instructionSet } = network;
    const verified = network.verify();
    network.close();
    const closed = await said(() => network.run(rows[0]));
    return { outputs, input, shapes: network.outputs, labels, edges, image, instructionSet, verified, closed };
  },
  async photos({ file, photos }) {
    const network = await Network.load(await bytes(file));
    const answer = async ({ pixels, width, height }) => {
      const x = network.prepare({ data: await bytes(pixels), width, height });
      return { x: [...x], probabilities: softmax(network.run(x)) };
    };
    return Promise.all(photos.map(answer));
  },
  async poses({ file, photos, heatmaps }) {
    const network = await Network.load(await bytes(file));
    const answer = async (photo) => {
      const { pixels, part } = padded({ ...photo, data: await bytes(photo.pixels) }, network.image);
      const x = network.prepare(pixels);
      const [, height, width] = network.outputs[0].shape;
      const found = keypoints([network.run(x)].flat()[0], width, height, heatmaps);
      const points = found.map(({ x, y }) => [part.left + x * part.width, part.top + y * part.height]);
      return { x: [...x], points };
    };
    return Promise.all(photos.map(answer));
  },
  async keypoints({ maps, width, height, scale }) {
    return keypoints(await floats(maps), width, height, scale);
  },
  async probabilities({ scores }) {
    return probabilities(await floats(scores));
  },
  async refused({ file, altered }) {
    const good = await bytes(file);
    const network = await Network.load(good);
    const messages = {
      short: await said(() => network.run(new Float32Array(3))),
      kind: await said(() => network.run([1, 2, 3])),
      infinite: await said(() => network.run(new Float32Array(network.input.size).fill(Infinity))),
      long: await said(() => padded({ data: [], width: 650, height: 10 }, { width: 8, height: 8 })),
      size: await said(() => network.prepare({ data: new Uint8Array(15), width: 2, height: 2 })),
      none: await said(() => Network.load(null)),
      threads: await said(() => Network.load(good, { threads: 0 })),
      many: await said(() => Network.load(good, { threads: "2" })),
      missing: await said(() => Network.load(pathToFileURL("/none.bfp"))),
    };
    for (const [name, path] of Object.entries(altered)) messages[name] = await said(async () => Network.load(await bytes(path)));
    globalThis.crossOriginIsolated = false;
    messages.alone = await said(() => Network.load(good, { threads: 2 }));
    const after = network.run(new Float32Array(network.input.size));
    return { messages, after: [...after] };
  },
  async memory({ file, calls }) {
    const { Memory } = WebAssembly;
    let memory;
    WebAssembly.Memory = function (...options) {
      return (memory = new Memory(...options));
    };
    const network = await Network.load(await bytes(file));
    network.verify();
    const before = memory.buffer.byteLength;
    for (let i = 0; i < calls; i++) network.verify();
    return [before, memory.buffer.byteLength];
  },
  // By a worker with a stack so small that its first piece of work goes beyond the memory.
  async lost({ file, stack }) {
    const { postMessage } = Worker.prototype;
    Worker.prototype.postMessage = function (message) {
      postMessage.call(this, { ...message, stack });
    };
    const network = await Network.load(await bytes(file), { threads: 2 });
    const x = new Float32Array(network.input.size);
    const messages = [];
    for (let i = 0; i < 1000 && !messages.length; i++) messages.push(...[await said(() => network.run(x))].filter(Boolean));
    return [...messages, await said(() => network.run(x))];
  },
  async workers({ file }) {
    Worker.prototype.once = function (kind, listener) {
      if (kind === "error") listener(new Error("none"));
      this.terminate();
    };
    Object.defineProperty(globalThis, "navigator", { value: { hardwareConcurrency: 8 } });
    const network = await Network.load(await bytes(file));
    return [network.threads, await said(async () => Network.load(await bytes(file), { threads: 2 }))];
  },
  async simd() {
    return [hasSimd(), hasRelaxedSimd()];
  },
};

const [task, request] = process.argv.slice(2);
console.log(JSON.stringify(await tasks[task](JSON.parse(request))));
